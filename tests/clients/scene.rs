//! One case's world: a workspace, a home, a policy that leads to the stub, and the run itself.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::census;
use crate::copied::copy_program;
use crate::identity::Identity;
use crate::installed::Clients;
use crate::stub::{Settings, Stub};

/// How often the living are counted during a run.
const LOOK: Duration = Duration::from_millis(50);
/// A client that neither ends nor is ended fails its case instead of hanging the gate.
const LONGEST: Duration = Duration::from_secs(120);

/// What a case runs in.
#[derive(Debug)]
pub(crate) struct Scene {
    identity: Identity,
    clients: Clients,
    directory: TempDir,
    program: PathBuf,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) report: Value,
    /// The most processes of the jail that were seen at one time.
    pub(crate) seen_alive: usize,
    /// Those that outlived the program.
    pub(crate) survivors: Vec<u32>,
}

impl Scene {
    /// Outside of /tmp: the jail has a private one, and codex distrusts a home below it.
    pub(crate) fn set(identity: Identity, clients: Clients) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("kvro-clients-").tempdir_in("/var/tmp")?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700))?;
        // What the clients keep in the home is there, as after their first start.
        for name in ["work", "home", "home/.claude", "home/.codex", "home/.gemini", "provider"] {
            let path = directory.path().join(name);
            fs::create_dir(&path)?;
            identity.give(&path)?;
        }
        for (name, text) in [("home/.claude/settings.json", "{}"), ("home/.codex/config.toml", "")]
        {
            let path = directory.path().join(name);
            fs::write(&path, text)?;
            identity.give(&path)?;
        }
        // A copy, because the build directory may be closed to the ordinary user.
        let program = directory.path().join("kvro-jail");
        let built = std::env::var_os("KVRO_BIN").map(PathBuf::from);
        let built = built.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_kvro-jail")));
        copy_program(&built, &program)
            .with_context(|| format!("no program {}", built.display()))?;
        identity.give(directory.path())?;
        Ok(Self { identity, clients, directory, program })
    }

    /// A provider that answers in this mode of the stub's.
    pub(crate) fn provider(&self, mode: &str) -> anyhow::Result<Stub> {
        let directory = self.path("provider").display().to_string();
        let words = ["--dir", &directory, "--mode", mode].map(str::to_owned);
        Stub::start(Settings::from_arguments(words)?)
    }

    /// Runs `client` in the jail to its end, counting who is alive meanwhile and after.
    pub(crate) fn jail(
        &self,
        stub: &Stub,
        options: &[&str],
        client: &[&str],
    ) -> anyhow::Result<Ran> {
        let policy = self.path("policy.toml");
        fs::write(&policy, policy_to(stub))?;
        let report = self.path("report.json");
        let mark = format!("kvro-clients-mark-{}", self.path("").display());
        let (stdout, stderr) = (self.path("stdout"), self.path("stderr"));

        let mut command = self.identity.command(&self.program)?;
        command
            .env("HOME", self.path("home"))
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.clients.bin.display()))
            .env("LANG", "C.UTF-8")
            .current_dir(self.path("work"))
            .stdout(Stdio::from(fs::File::create(&stdout)?))
            .stderr(Stdio::from(fs::File::create(&stderr)?))
            .args(["--profile", if client[0] == "sh" { "claude" } else { client[0] }])
            .arg("--policy")
            .arg(&policy)
            .arg("--read")
            .arg(self.clients.tree())
            .arg("--report")
            .arg(&report)
            .args(["--env", "ANTHROPIC_API_KEY=sk-ant-placeholder"])
            .args(["--env", "OPENAI_API_KEY=sk-placeholder"])
            .args(["--env", "GEMINI_API_KEY=placeholder"])
            .arg("--env")
            .arg(format!("KVRO_CLIENTS_MARK={mark}"))
            .args(options)
            .arg("--")
            .args(client);

        let mut child = command.spawn().context("cannot start the program")?;
        let started = Instant::now();
        let mut seen_alive = 0;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > LONGEST {
                // The tree goes with its supervisor; what it said until then is the report.
                child.kill()?;
            }
            seen_alive = seen_alive.max(census::marked(&mark).len());
            thread::park_timeout(LOOK);
        };
        let survivors = census::marked(&mark);
        Ok(Ran {
            code: status.code(),
            stdout: read(&stdout)?,
            stderr: read(&stderr)?,
            report: serde_json::from_str(&read(&report).unwrap_or_default()).unwrap_or_default(),
            seen_alive,
            survivors,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr, report, .. } = self;
        write!(f, "exit {code:?}\nreport: {report}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

fn policy_to(stub: &Stub) -> String {
    let ready = stub.ready();
    let (port, ca) = (ready.tls, ready.ca.display());
    format!(
        r#"version = 1
extends = ["builtin:default"]
[net]
allow = ["api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"]
danger_private = ["127.0.0.1/32"]
extra_ca = ["{ca}"]
[net.connect_to]
"api.anthropic.com:443" = "127.0.0.1:{port}"
"api.openai.com:443" = "127.0.0.1:{port}"
"generativelanguage.googleapis.com:443" = "127.0.0.1:{port}"
"#
    )
}

fn read(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
