//! Who a case runs as: the caller, and, where the caller is root, an ordinary user too.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::lchown;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use nix::unistd::{Uid, User};

/// Made with useradd when it is first needed; it owns nothing and cannot log in.
const TESTER: &str = "kvro-tester";

/// Who starts the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Root,
    /// The caller, or the tester where the caller is root.
    Ordinary,
}

impl Identity {
    /// Those that this process can be.
    pub(crate) fn available() -> &'static [Self] {
        if Uid::effective().is_root() { &[Self::Root, Self::Ordinary] } else { &[Self::Ordinary] }
    }

    /// A command that runs `program` as this user, with nothing of our environment.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let mut command = match self.other_user()? {
            None => new_command(program.as_ref()),
            Some(user) => {
                let mut command = new_command(OsStr::new("setpriv"));
                command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
                command.args(["--init-groups", "--inh-caps=-all", "--"]).arg(program);
                command
            }
        };
        command.env_clear().stdin(Stdio::null());
        Ok(command)
    }

    /// Makes `path` this user's own.
    pub(crate) fn give(self, path: &Path) -> anyhow::Result<()> {
        if let Some(user) = self.other_user()? {
            lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .with_context(|| format!("cannot give {} away", path.display()))?;
        }
        Ok(())
    }

    fn other_user(self) -> anyhow::Result<Option<User>> {
        match self {
            Self::Ordinary if Uid::effective().is_root() => tester().map(Some),
            Self::Root | Self::Ordinary => Ok(None),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "as root",
            Self::Ordinary => "as an ordinary user",
        })
    }
}

fn tester() -> anyhow::Result<User> {
    if let Some(user) = User::from_name(TESTER)? {
        return Ok(user);
    }
    let made = new_command(OsStr::new("useradd"))
        .args(["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"])
        .args(["--shell", "/usr/sbin/nologin", TESTER])
        .output()
        .context("cannot run useradd")?;
    // Another test may have made it in between; what counts is that it is there.
    let found = User::from_name(TESTER)?;
    ensure!(found.is_some(), "useradd: {}", String::from_utf8_lossy(&made.stderr));
    found.context("no such user")
}

#[expect(clippy::disallowed_methods, reason = "a test starts programs; that is its work")]
pub(crate) fn new_command(program: &OsStr) -> Command {
    Command::new(program)
}
