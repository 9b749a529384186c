//! Where a benchmark runs: a home and a workspace of its own, and programs called in them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Gone when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// Outside of /tmp: the jail has a private one.
    pub(crate) fn new() -> io::Result<Self> {
        let place = Self {
            directory: tempfile::Builder::new().prefix("kvro-bench-").tempdir_in("/var/tmp")?,
        };
        fs::create_dir_all(place.path("home/work"))?;
        Ok(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `agent` in a jail, with nothing of our own words.
    pub(crate) fn jail(&self, options: &[&str], agent: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_kvro-jail"));
        command.arg("-q").args(options).arg("--").args(agent);
        command
    }

    /// Any program in the workspace, with an environment by list.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = new_command(program.as_ref());
        command.env_clear().env("HOME", self.path("home")).env("PATH", PATH);
        command.current_dir(self.path("home/work")).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[expect(clippy::disallowed_methods, reason = "a benchmark starts what it times")]
pub(crate) fn new_command(program: &OsStr) -> Command {
    Command::new(program)
}
