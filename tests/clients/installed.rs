//! Finds the clients, installing them first where they are not there yet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, bail, ensure};

use crate::identity::{Identity, new_command};

/// The directory that has `claude`, `codex` and `gemini`, readable by whoever will run them.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    pub(crate) bin: PathBuf,
}

impl Clients {
    /// An error is the reason to skip: there is no npm, no network, or no way to read them.
    pub(crate) fn find(identity: Identity) -> anyhow::Result<Self> {
        static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| install().map_err(|error| format!("{error:#}")));
        let bin = match installed {
            Ok(bin) => bin.clone(),
            Err(reason) => bail!("the clients cannot be installed: {reason}"),
        };
        for client in ["claude", "codex", "gemini"] {
            let readable = identity.command("test")?.arg("-x").arg(bin.join(client)).status()?;
            let place = bin.display();
            ensure!(
                readable.success(),
                "{client} in {place} is out of reach {identity}; set KVRO_CLIENTS_DIR to a place \
                 that everybody may read"
            );
        }
        Ok(Self { bin })
    }

    /// What must be visible inside for the clients to start.
    pub(crate) fn tree(&self) -> &Path {
        self.bin.parent().unwrap_or(&self.bin)
    }
}

fn install() -> anyhow::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/clients-install");
    let mut command = new_command(script.as_os_str());
    if std::env::var_os("KVRO_CLIENTS_DIR").is_none() {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("no target")?;
        command.env("KVRO_CLIENTS_DIR", target.join("clients"));
    }
    let ran = command.output().context("cannot run scripts/clients-install")?;
    let words = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "{}", words.lines().next().unwrap_or("no reason given"));
    let bin = String::from_utf8(ran.stdout)?;
    Ok(PathBuf::from(OsStr::new(bin.trim_end())))
}
