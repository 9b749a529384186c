//! What the flags of a run say, laid over the policy.
//!
//! The person at the keyboard has the user's own authority: flags may widen what files grant, and
//! only the administrator's ceiling holds them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use kvro_ledger::PicoUsd;
use kvro_proxy::HostPattern;

use super::entry::{Entry, Origin};
use super::globs::{Cover, PathGlob};
use super::names::{Name, NameError, NamePattern, Variable};
use super::reader::lexical;
use super::rules::{Level, NetMode, Policy};
use super::units::{ByteSize, Cpus, Span};
use crate::limits::OnLimit;

/// The flags that change a policy, parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    /// `--policy`: stands in for the files that would be looked up.
    pub policy: Option<PolicyChoice>,
    /// Relative paths are taken from the current directory, as a shell's user expects.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub hide: Vec<PathGlob>,
    pub protect: Vec<PathGlob>,
    pub net: Option<NetMode>,
    pub allow_host: Vec<HostPattern>,
    pub deny_host: Vec<HostPattern>,
    pub env: Vec<EnvWord>,
    pub max_turns: Option<u64>,
    pub max_usd: Option<PicoUsd>,
    pub max_tokens: Option<u64>,
    pub max_context_tokens: Option<u64>,
    pub max_wall: Option<Span>,
    pub warn_at: Option<Vec<u8>>,
    pub on_limit: Option<OnLimit>,
    pub memory: Option<ByteSize>,
    pub pids: Option<u64>,
    pub cpus: Option<Cpus>,
    pub require: Option<Level>,
}

/// `builtin:NAME` or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChoice {
    Builtin(String),
    File(PathBuf),
}

/// `--env NAME` or `--env NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvWord {
    Pass(NamePattern),
    Set(Variable),
}

impl FromStr for PolicyChoice {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.strip_prefix("builtin:") {
            Some(name) => Self::Builtin(name.to_owned()),
            None => Self::File(text.into()),
        })
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl FromStr for EnvWord {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('=') {
            None => text.parse().map(Self::Pass),
            Some((name, value)) => {
                let Name(name) = name.parse()?;
                Ok(Self::Set(Variable { name, value: value.to_owned() }))
            }
        }
    }
}

impl Overlay {
    /// Lays the flags over `policy`; `cwd` is where they were typed.
    pub(super) fn apply(&self, policy: &mut Policy, cwd: &Path) {
        let paths = |paths: &[PathBuf]| -> Vec<_> {
            paths.iter().map(|path| Entry::typed(lexical(&cwd.join(path)))).collect()
        };
        policy.files.read.extend(paths(&self.read));
        policy.files.write.extend(paths(&self.write));
        extend(&mut policy.files.hide, &self.hide);
        extend(&mut policy.files.protect, &self.protect);
        policy.net.allow.extend(self.allow_host.iter().cloned().map(Entry::typed));
        policy.net.deny.extend(self.deny_host.iter().cloned().map(Entry::typed));
        for word in &self.env {
            match word {
                EnvWord::Pass(pattern) => {
                    for list in &mut policy.env.pass {
                        list.push(Entry::typed(pattern.clone()));
                    }
                }
                EnvWord::Set(variable) => policy.env.set.push(Entry::typed(variable.clone())),
            }
        }
        self.apply_single_values(policy);
    }

    fn apply_single_values(&self, policy: &mut Policy) {
        let Policy { limits, resources, net, require, origins, .. } = policy;
        let mut set = |key: &'static str, said: bool| {
            if said {
                origins.insert(key, Origin::command_line());
            }
        };
        set("limits.max_turns", replace_some(&mut limits.max_turns, self.max_turns));
        set("limits.max_usd", replace_some(&mut limits.max_usd, self.max_usd));
        set("limits.max_tokens", replace_some(&mut limits.max_tokens, self.max_tokens));
        let context = replace_some(&mut limits.max_context_tokens, self.max_context_tokens);
        set("limits.max_context_tokens", context);
        let wall = self.max_wall.map(|span| span.0);
        set("limits.max_wall", replace_some(&mut limits.max_wall, wall));
        set("limits.warn_at", replace(&mut limits.warn_at, self.warn_at.clone()));
        set("limits.on_limit", replace(&mut limits.on_limit, self.on_limit));
        set("resources.memory", replace_some(&mut resources.memory, self.memory));
        set("resources.pids", replace_some(&mut resources.pids, self.pids));
        set("resources.cpus", replace_some(&mut resources.cpus, self.cpus));
        set("net.mode", replace(&mut net.mode, self.net));
        set("isolation.require", replace(require, self.require));
    }
}

/// A flag speaks after every authority's own patterns, so that `!` can take back what a file says.
fn extend(cover: &mut Cover, flags: &[PathGlob]) {
    for list in &mut cover.lists {
        list.extend(flags.iter().cloned().map(Entry::typed));
    }
}

fn replace<T>(slot: &mut T, value: Option<T>) -> bool {
    let Some(value) = value else { return false };
    *slot = value;
    true
}

fn replace_some<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    replace(slot, value.map(Some))
}
