//! What surrounds a jail in a test: a workspace with secrets, a home, a state directory, and things
//! of the host that nobody inside may reach.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::census;
use crate::copied::copy_program;
use crate::identity::Identity;
use crate::planted::Planted;
use crate::prisoner::{ARGUMENT, CANARY, KEY};
use crate::tools;

/// Everything around one jail; gone when dropped.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) identity: Identity,
    directory: TempDir,
    program: PathBuf,
    /// A server of the host, on every address.
    server: TcpListener,
    /// What `{name}` stands for in a probe's words.
    words: BTreeMap<&'static str, String>,
    _planted: Planted,
}

/// On which side of the wall a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Inside,
    Outside,
}

impl World {
    /// A world in which the files that `words` name are there.
    pub(crate) fn set(identity: Identity, words: &[Vec<String>]) -> anyhow::Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("kvro-escape-").tempdir_in(tools::SCRATCH)?;
        let at = |name: &str| directory.path().join(name);
        // As many a home is: nobody but its owner, and so not the agent of a root caller, may look a
        // name up in what holds the workspace.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700))?;
        for name in ["work", "spare", "home", "home/.ssh", "state"] {
            fs::create_dir(at(name))?;
        }
        fs::set_permissions(at("state"), Permissions::from_mode(0o700))?;
        fs::write(at("home/.ssh/id_test"), CANARY)?;
        for place in ["work", "spare"] {
            furnish(&at(place), words)?;
        }
        give_all(identity, directory.path())?;
        // Root's own, shown by nothing: the agent's directories are listed one by one.
        fs::write(at("outside"), CANARY)?;
        let server = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
        server.set_nonblocking(true)?;
        let mut found = BTreeMap::from([
            ("dir", directory.path().display().to_string()),
            ("port", server.local_addr()?.port().to_string()),
        ]);
        let planted = Planted::plant(directory.path(), &mut found)?;
        let program = tools::program();
        Ok(Self { identity, directory, program, server, words: found, _planted: planted })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The directory that holds all of it.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Has this world's jails run by a copy of the program that nobody else runs.
    pub(crate) fn take_own_program(&mut self) -> anyhow::Result<()> {
        let own = self.path("kvro-jail");
        copy_program(&self.program, &own)?;
        self.program = own;
        Ok(())
    }

    /// Who of this world's jails is alive: whoever carries `mark`, and whoever runs the program's
    /// copy, since what builds a jail has no environment.
    pub(crate) fn alive(&self, mark: &str) -> anyhow::Result<Vec<u32>> {
        let mut alive = census::marked(mark);
        let own = fs::metadata(&self.program)?;
        for entry in fs::read_dir("/proc")?.flatten() {
            let pid: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Ok(runs) = fs::metadata(entry.path().join("exe")) else { continue };
            if (runs.dev(), runs.ino()) == (own.dev(), own.ino()) {
                alive.extend(pid);
            }
        }
        Ok(alive)
    }

    /// The workspace.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    pub(crate) fn port(&self) -> &str {
        self.words.get("port").map_or("", String::as_str)
    }

    /// How many connections the host's server got since it was last asked.
    pub(crate) fn connections(&self) -> usize {
        std::iter::from_fn(|| self.server.accept().ok()).count()
    }

    /// `word` with the places of the world put in; `{here}` is where the prisoner works.
    pub(crate) fn resolve(&self, word: &str, side: Side) -> String {
        let here = match side {
            Side::Inside => self.work(),
            Side::Outside => self.path("spare"),
        };
        let mut word = word.replace("{here}", &here.display().to_string());
        for (name, value) in &self.words {
            word = word.replace(&format!("{{{name}}}"), value);
        }
        word
    }

    /// A command that runs `prisoner` in a jail.
    pub(crate) fn jail(&self, options: &[&str], prisoner: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.jail_for(options)?;
        command.arg("--").arg(tools::probe()).arg(ARGUMENT).args(prisoner);
        Ok(command)
    }

    /// A command that runs the program in the workspace, up to its own options.
    pub(crate) fn jail_for(&self, options: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.command(self.identity)?;
        command
            .arg(&self.program)
            .current_dir(self.work())
            .arg("--quiet")
            .args(["--policy", "builtin:default"])
            .arg("--read")
            .arg(tools::place())
            .args(options);
        Ok(command)
    }

    /// A command that runs `prisoner` as `identity` outside of any jail.
    pub(crate) fn outside(&self, identity: Identity, prisoner: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.command(identity)?;
        command.arg(tools::probe()).current_dir(self.path("spare")).arg(ARGUMENT).args(prisoner);
        Ok(command)
    }

    /// What starts either: with a key in its keyring and an environment of this world.
    fn command(&self, identity: Identity) -> anyhow::Result<Command> {
        let mut command = identity.command(tools::probe())?;
        command
            .args([ARGUMENT, "with-key", KEY])
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.state())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8");
        Ok(command)
    }
}

/// Makes the files and directories that `words` name by relative paths.
fn furnish(place: &Path, words: &[Vec<String>]) -> anyhow::Result<()> {
    const FILES: [&str; 5] = [".env", "main.tf", "config", "pre-commit", "plain.txt"];
    for word in words.iter().flatten().map(Path::new) {
        let is_fixture =
            ["closed", "infra", ".git", "open"].iter().any(|top| word.starts_with(top));
        let Some(parent) = word.parent().filter(|_| is_fixture) else { continue };
        fs::create_dir_all(place.join(parent))?;
        if word.file_name().is_some_and(|name| FILES.iter().any(|file| name == *file)) {
            fs::write(place.join(word), format!("{CANARY}\n"))?;
        }
    }
    let secret = place.join("closed/alias/.env");
    if secret.exists() {
        // A second name of a secret file, from before.
        fs::hard_link(secret, place.join("open/second/name"))?;
    }
    Ok(())
}

/// Makes everything at and below `path` `identity`'s own.
pub(crate) fn give_all(identity: Identity, path: &Path) -> anyhow::Result<()> {
    identity.give(path)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_all(identity, &entry?.path())?;
        }
    }
    Ok(())
}
