//! A policy as it is enforced: merged, parsed, every rule with the line behind it.
//!
//! Plain values without a way back to TOML. What is not listed here is not granted.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use globset::Glob;
use ipnet::IpNet;
use kvro_ledger::PicoUsd;
use kvro_proxy::rules::Decision;
use kvro_proxy::{HostPattern, Rules, Server, ServerName};

use super::entry::{Entry, Origin};
use super::globs::Cover;
use super::leads::Leads;
use super::names::{NameList, NamePattern, Variable, passes};
use super::sieve::Sieve;
use super::units::{ByteSize, Cpus};
use crate::limits::Limits;

/// Everything that a run is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub files: FileRules,
    pub net: NetRules,
    pub limits: Limits,
    pub resources: Resources,
    /// The weakest isolation that may be in force.
    pub require: Level,
    pub env: EnvRules,
    /// Prices beside or instead of the built-in ones.
    pub prices: Vec<Entry<PriceRow>>,
    /// Who said each single-valued key, by its name in TOML: `limits.max_usd`.
    pub origins: BTreeMap<&'static str, Origin>,
}

/// `[fs]`. Paths are absolute and without `..`, but not followed through links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileRules {
    pub write: Vec<Entry<PathBuf>>,
    pub read: Vec<Entry<PathBuf>>,
    /// Unreadable, never writable, not creatable.
    pub hide: Cover,
    /// Readable, never writable or creatable.
    pub protect: Cover,
}

/// `[net]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetRules {
    pub mode: NetMode,
    pub allow: Vec<Entry<HostPattern>>,
    pub deny: Vec<Entry<HostPattern>>,
    /// Where the door listens beside the ports of `allow`.
    pub ports: Vec<Entry<u16>>,
    pub connect_to: Vec<Entry<Redirect>>,
    pub danger_private: Vec<Entry<IpNet>>,
    pub extra_ca: Vec<Entry<PathBuf>>,
    /// Servers that speak a provider's protocol beside the provider's own.
    pub inference: Vec<Entry<InferenceServer>>,
}

/// Whether there is a door at all. The stricter is the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetMode {
    Closed,
    Proxy,
}

/// Dial `to` where the agent asks for `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub from: Server,
    pub to: Server,
}

/// A server whose calls are metered as a provider's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferenceServer {
    pub server: ServerName,
    pub provider: kvro_proxy::inference::Provider,
}

/// `[resources]`; `None` is the machine's own limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    pub memory: Option<ByteSize>,
    pub pids: Option<u64>,
    pub cpus: Option<Cpus>,
}

/// How isolated the agent has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// User, mount, pid and network namespaces, Landlock, seccomp with notification.
    Full,
}

/// A text that names no level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the only level that this version knows is `full`")]
pub struct UnknownLevel;

/// Which variables of the caller come in, and which are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvRules {
    /// One list for each authority: a variable passes only where all of them let it.
    pub pass: Vec<NameList>,
    pub set: Vec<Entry<Variable>>,
}

/// `[[price]]`: dollars for a million tokens, web searches likewise for a thousand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceRow {
    pub model: String,
    pub provider: Option<String>,
    pub input: PicoUsd,
    pub output: PicoUsd,
    pub cache_read: Option<PicoUsd>,
    pub cache_write: Option<PicoUsd>,
    pub cache_write_long: Option<PicoUsd>,
    pub web_search: Option<PicoUsd>,
    pub context: Option<u64>,
    pub max_output: Option<u64>,
}

impl NetRules {
    /// The rules as the door judges by them. A closed door has none.
    #[must_use]
    pub fn rules(&self) -> Rules {
        if self.mode == NetMode::Closed {
            return Rules::closed();
        }
        let words = |list: &[Entry<HostPattern>]| list.iter().map(|e| e.value.clone()).collect();
        Rules::new(words(&self.allow), words(&self.deny))
    }

    /// What the door decides about `server`, and the entry behind it.
    #[must_use]
    pub fn judge(&self, server: &Server) -> (Decision, Option<&Entry<HostPattern>>) {
        let decision = self.rules().judge(server);
        let entry = match &decision {
            Decision::Allow(rule) => self.allow.iter().find(|entry| entry.value == *rule),
            Decision::Deny(_) => self.deny.iter().find(|entry| {
                let rule = &entry.value;
                rule.covers_name(&server.name) && rule.port().is_none_or(|p| p == server.port)
            }),
        };
        (decision, entry)
    }
}

impl FileRules {
    /// The rules as they hold where the git directories of the repositories are `git_dirs`.
    #[must_use]
    pub fn in_repositories(&self, git_dirs: &BTreeSet<PathBuf>) -> Self {
        let hide = self.hide.in_repositories(git_dirs);
        Self { hide, protect: self.protect.in_repositories(git_dirs), ..self.clone() }
    }

    /// The rules as they hold in a workspace with these git directories, where the repositories'
    /// hooks are in `hooks` and those of `pointers` lead to repositories.
    pub(crate) fn in_workspace<'h>(
        &self,
        git_dirs: &BTreeSet<PathBuf>,
        hooks: impl Iterator<Item = &'h Path>,
        pointers: impl Iterator<Item = &'h Path>,
    ) -> Self {
        let mut rules = self.in_repositories(git_dirs);
        let pointers = pointers.filter_map(Entry::pointer);
        rules.protect.add(hooks.filter_map(Entry::hooks_path).chain(pointers).collect());
        rules.folded_if(self.folds_case())
    }

    /// The rules as they hold where names in another case are the same, if they are.
    #[must_use]
    pub fn folded_if(self, folds_case: bool) -> Self {
        if folds_case { self.folded() } else { self }
    }

    /// The rules as they hold where names in another case are the same.
    #[must_use]
    pub fn folded(&self) -> Self {
        Self { hide: self.hide.folded(), protect: self.protect.folded(), ..self.clone() }
    }

    /// Whether the rules hold for names in any case.
    pub(crate) fn folds_case(&self) -> bool {
        self.hide.folds_case() || self.protect.folds_case()
    }

    /// Every glob that can make something hidden or protected.
    pub(crate) fn globs(&self) -> impl Iterator<Item = &Glob> + Clone {
        self.hide.globs().chain(self.protect.globs())
    }

    /// The directories that lead to what is hidden or protected.
    pub(crate) fn leads(&self) -> Leads {
        Leads::of(self.hide.patterns().chain(self.protect.patterns()))
    }

    /// All of [`Self::globs`] at once, since nearly every path matches none.
    pub(crate) fn sieve(&self) -> Result<Sieve, globset::Error> {
        Sieve::of(self.globs())
    }

    /// The grant that makes `path` writable, the most specific first.
    #[must_use]
    pub fn writable(&self, path: &Path) -> Option<&Entry<PathBuf>> {
        nearest_above(&self.write, path)
    }

    /// The grant that makes `path` readable beside the workspace.
    #[must_use]
    pub fn readable(&self, path: &Path) -> Option<&Entry<PathBuf>> {
        nearest_above(&self.read, path).or_else(|| self.writable(path))
    }
}

impl PriceRow {
    /// The row as the price table takes it.
    #[must_use]
    pub fn typed(&self) -> kvro_proxy::price::PriceRow {
        let words = |amount: Option<PicoUsd>| amount.map(|amount| amount.to_string());
        kvro_proxy::price::PriceRow {
            model: self.model.clone(),
            provider: self.provider.clone(),
            input: self.input.to_string(),
            output: self.output.to_string(),
            cache_read: words(self.cache_read),
            cache_write: words(self.cache_write),
            cache_write_long: words(self.cache_write_long),
            web_search: words(self.web_search),
            context: self.context,
            max_output: self.max_output,
            us: None,
            fast: None,
            when: Vec::new(),
            why: None,
        }
    }
}

fn nearest_above<'l>(list: &'l [Entry<PathBuf>], path: &Path) -> Option<&'l Entry<PathBuf>> {
    list.iter()
        .filter(|entry| path.starts_with(&entry.value))
        .max_by_key(|entry| entry.value.as_os_str().len())
}

impl EnvRules {
    /// The entry that lets `name` of the caller's environment in.
    #[must_use]
    pub fn passing(&self, name: &str) -> Option<&Entry<NamePattern>> {
        let mut by_list = self.pass.iter().map(|list| passes(list, name));
        let first = by_list.next()??;
        by_list.all(|entry| entry.is_some()).then_some(first)
    }

    /// What `name` is set to, whatever the caller has; the last word counts.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&Entry<Variable>> {
        self.set.iter().rev().find(|entry| entry.value.name == name)
    }

    /// Whether `name` comes in. A name that is not UTF-8 never does.
    #[must_use]
    pub fn lets_in(&self, name: &OsStr) -> bool {
        name.to_str().is_some_and(|name| self.passing(name).is_some())
    }
}

impl FromStr for NetMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "closed" => Ok(Self::Closed),
            "proxy" => Ok(Self::Proxy),
            _ => Err(UnknownMode),
        }
    }
}

/// A text that names no mode of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the network is `closed` or goes through the `proxy`")]
pub struct UnknownMode;

impl fmt::Display for NetMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Proxy => "proxy",
        })
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        if text == "full" { Ok(Self::Full) } else { Err(UnknownLevel) }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("full")
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}
