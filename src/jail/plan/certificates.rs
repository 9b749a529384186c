//! What programs inside trust: the host's roots, the policy's own, and the run's authority.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kvro_sandbox::{Content, HostFile, Mount};

/// Every authority in one file.
const BUNDLE: &str = "/etc/kvro-jail/ca-bundle.pem";

/// The run's own authority, for programs that add to their own roots.
const RUN_CA: &str = "/etc/kvro-jail/run-ca.pem";

/// Where systems keep their bundle: Debian and Alpine, Fedora, SUSE, BSD habits.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Variables by which programs find a bundle that stands in for their own.
const BUNDLE_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "CODEX_CA_CERTIFICATE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "DENO_CERT",
];

/// Node adds what is in this file to its own roots.
const ADDED_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

/// The authorities of a run, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    run_ca: String,
    /// What comes after the host's roots.
    added: Vec<u8>,
    /// The host's bundles, which are covered by ours.
    covered: Vec<PathBuf>,
}

impl Bundle {
    /// Joins the host's roots, `extra` and the run's own authority.
    #[must_use]
    pub fn new(run_ca: String, extra: &[u8]) -> Self {
        let there = SYSTEM_BUNDLES.iter().filter_map(|path| real(Path::new(path)));
        let mut covered: Vec<PathBuf> = there.collect();
        covered.sort();
        covered.dedup();
        let mut added = extra.to_owned();
        if added.last().is_some_and(|&byte| byte != b'\n') {
            added.push(b'\n');
        }
        added.extend_from_slice(run_ca.as_bytes());
        Self { run_ca, added, covered }
    }

    pub(super) fn mounts(&self) -> Vec<Mount> {
        let file = |target: &str, content| Mount::File { target: target.into(), content };
        // Copied where it is shown: it is too large to travel with the plan.
        let host = self.covered.iter().find(|path| File::open(path).is_ok());
        let host = host.cloned().map(HostFile);
        let all = Content { host, own: self.added.clone() };
        let mut mounts = vec![file(BUNDLE, all), file(RUN_CA, self.run_ca.clone().into())];
        let alias = |target: &PathBuf| Mount::Alias { of: BUNDLE.into(), target: target.clone() };
        mounts.extend(self.covered.iter().map(alias));
        mounts
    }

    /// The variables that lead programs to it.
    pub(super) fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
        let whole = BUNDLE_VARIABLES.iter().map(|name| (*name, BUNDLE));
        whole.chain([(ADDED_VARIABLE, RUN_CA)])
    }
}

/// The file that a bundle's name leads to, when it lies where the jail shows it.
fn real(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..8 {
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_symlink() {
            return metadata.is_file().then_some(path).filter(|path| path.starts_with("/etc"));
        }
        let to = fs::read_link(&path).ok()?;
        path = path.parent()?.join(to);
    }
    None
}
