//! What the program takes from the user's account: directories, the environment, where it was
//! called. Read once at the edge and passed on, so that everything behind it can be tested with a
//! made-up home.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// The name of every directory of ours.
const NAME: &str = "kvro-jail";

/// Set in the environment of every agent.
pub const JAIL_VARIABLE: &str = "KVRO_JAIL";

/// Where the caller lives and calls from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    pub config_home: PathBuf,
    /// `$XDG_STATE_HOME`, else `~/.local/state`.
    pub state_home: PathBuf,
    pub cwd: PathBuf,
    /// `/etc`.
    pub etc: PathBuf,
    pub env: BTreeMap<OsString, OsString>,
}

/// The caller's account cannot be made out.
#[derive(Debug, thiserror::Error)]
pub enum SurroundingsError {
    #[error("HOME is not set, and the user database names no home directory")]
    NoHome,
    #[error("the current directory cannot be found")]
    Cwd(#[source] io::Error),
}

impl Surroundings {
    /// Reads the process's own.
    pub fn of_this_process() -> Result<Self, SurroundingsError> {
        let cwd = std::env::current_dir().map_err(SurroundingsError::Cwd)?;
        Self::from_env(std::env::vars_os().collect(), cwd, account_home)
    }

    /// Variables that hold no absolute path are passed over, as the XDG specification asks.
    fn from_env(
        env: BTreeMap<OsString, OsString>,
        cwd: PathBuf,
        account_home: impl FnOnce() -> Option<PathBuf>,
    ) -> Result<Self, SurroundingsError> {
        let absolute =
            |name: &str| env.get(OsStr::new(name)).map(PathBuf::from).filter(|p| p.is_absolute());
        let home = absolute("HOME").or_else(account_home).ok_or(SurroundingsError::NoHome)?;
        Ok(Self {
            config_home: absolute("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            state_home: absolute("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")),
            home,
            cwd,
            etc: PathBuf::from("/etc"),
            env,
        })
    }

    /// Ledgers, control sockets, the trust store. Never visible inside a jail.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.state_home.join(NAME)
    }

    /// The user's own policy and whatever else they configure.
    #[must_use]
    pub fn config_dir(&self) -> PathBuf {
        self.config_home.join(NAME)
    }

    /// The administrator's ceiling.
    #[must_use]
    pub fn ceiling_file(&self) -> PathBuf {
        self.etc.join(NAME).join("policy.toml")
    }

    /// Whether the caller is an agent of ours, as its environment says.
    #[must_use]
    pub fn is_in_a_jail(&self) -> bool {
        self.env.contains_key(OsStr::new(JAIL_VARIABLE))
    }

    /// A variable that holds an absolute path.
    #[must_use]
    pub fn path_variable(&self, name: &str) -> Option<&Path> {
        self.env.get(OsStr::new(name)).map(Path::new).filter(|path| path.is_absolute())
    }
}

fn account_home() -> Option<PathBuf> {
    let user = User::from_uid(Uid::current()).ok().flatten()?;
    Some(user.dir).filter(|dir| dir.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(env: &[(&str, &str)]) -> Result<Surroundings, SurroundingsError> {
        let env = env.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        Surroundings::from_env(env, "/w".into(), || Some("/account".into()))
    }

    #[test]
    fn relative_directories_in_the_environment_are_passed_over() -> Result<(), SurroundingsError> {
        let found = from(&[("HOME", "."), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "/c")])?;
        assert_eq!(found.home, PathBuf::from("/account"));
        assert_eq!(found.state_dir(), PathBuf::from("/account/.local/state/kvro-jail"));
        assert_eq!(found.config_dir(), PathBuf::from("/c/kvro-jail"));
        Ok(())
    }

    #[test]
    fn a_caller_without_a_home_is_an_error() {
        let lost = Surroundings::from_env(BTreeMap::new(), "/w".into(), || None);
        assert!(matches!(lost, Err(SurroundingsError::NoHome)));
    }
}
