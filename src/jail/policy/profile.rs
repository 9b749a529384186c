//! Profiles: what a program needs from the user's home and environment, as data.
//!
//! A profile never grants a server: it only says which one the program needs, and the policy
//! decides. What it shows of the home is a list of names; whatever is not on it is not there.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use kvro_proxy::{HostPattern, ServerName};
use serde::{Deserialize, Serialize};

use super::builtin;
use super::entry::Entry;
use super::error::{Mistake, PolicyError, nearest};
use super::globs::GlobList;
use super::names::{Name, NamePattern, Variable};
use super::reader::{Anchors, Section, Source, Value};
use super::schema::{many, variables};

/// Always in force: the terminal and locale, and the toolchains, which show only what exists.
const ALWAYS: [&str; 4] = ["base", "rust", "node", "python"];

/// The agent's profile when nothing is known about the command.
const GENERIC: &str = "generic";

/// One profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    pub about: String,
    /// The commands by which it is guessed.
    pub commands: Vec<String>,
    /// What the program cannot do without; the policy has to allow it.
    pub servers: Vec<Entry<HostPattern>>,
    /// Kept in the home, read-write: logins and state.
    pub keep: Vec<Entry<Keep>>,
    /// Shown read-only.
    pub read: Vec<Entry<HomePath>>,
    /// Shown read-only when they hold no secret.
    pub read_if_clean: Vec<Entry<CleanFile>>,
    /// Writable in a private layer that lasts, over what the host has.
    pub caches: Vec<Entry<HomePath>>,
    /// Never shown, whatever else is listed or found on `PATH`.
    pub never: Vec<Entry<HomePath>>,
    /// Variables that name a directory instead of the usual one in the home.
    pub moved: Vec<Moved>,
    pub pass: Vec<Entry<NamePattern>>,
    pub set: Vec<Entry<Variable>>,
}

/// A path below the home, or below the directory that a variable names (`$VIRTUAL_ENV`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomePath {
    BelowHome(PathBuf),
    BelowVariable { variable: String, rest: PathBuf },
}

/// State that an agent keeps, without what others would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    pub path: HomePath,
    /// Relative to `path`: readable, never writable or creatable.
    pub protect: GlobList,
    /// Where the JSON file `path` names programs.
    pub watch: Vec<Entry<KeyPath>>,
}

/// The way to something in a JSON document: names of members, of which `*` is any, with dots
/// between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPath(String);

impl KeyPath {
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl FromStr for KeyPath {
    type Err = EmptyKey;

    fn from_str(text: &str) -> Result<Self, EmptyKey> {
        if text.split('.').any(str::is_empty) { Err(EmptyKey) } else { Ok(Self(text.to_owned())) }
    }
}

/// A text that leads nowhere in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name between dots is empty")]
pub struct EmptyKey;

/// A file that is only shown when none of `unless` stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanFile {
    pub path: HomePath,
    /// In lower case.
    pub unless: Vec<String>,
}

/// `CARGO_HOME` instead of `~/.cargo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub variable: String,
    pub usual: PathBuf,
    pub why: Option<Arc<str>>,
}

/// The profiles in force for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles {
    /// The agent's own profile.
    pub agent: Profile,
    /// `base` and the toolchains.
    pub always: Vec<Profile>,
}

impl Profiles {
    /// The profile called `name`, else the one that knows `command`, else `generic`.
    pub fn choose(name: Option<&str>, command: Option<&OsStr>) -> Result<Self, PolicyError> {
        let always = ALWAYS.into_iter().map(builtin_profile).collect::<Result<Vec<_>, _>>()?;
        let agent = match name {
            Some(name) => builtin_profile(name)?,
            None => guess(command, &always)?,
        };
        Ok(Self { agent, always })
    }

    /// Every profile, the agent's last.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        let own = !self.always.iter().any(|profile| profile.name == self.agent.name);
        self.always.iter().chain(own.then_some(&self.agent))
    }
}

/// Reads a built-in profile.
pub fn builtin_profile(name: &str) -> Result<Profile, PolicyError> {
    let text = builtin::profile(name).ok_or_else(|| {
        let names = builtin::profile_names();
        let hint = match nearest(name, names.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("known: {}", names.join(", ")),
        };
        PolicyError::UnknownProfile { name: name.to_owned(), hint }
    })?;
    // Profiles hold no path that is relative to anything but the home, which is filled in later.
    let nowhere = Anchors { workspace: "/".into(), home: "/".into(), file_dir: None };
    parse(&Source { layer: format!("profile:{name}").into(), body: text.into(), anchors: nowhere })
}

/// The profile that knows `command`; those in `read` need not be read again.
fn guess(command: Option<&OsStr>, read: &[Profile]) -> Result<Profile, PolicyError> {
    let base = command.and_then(|command| Path::new(command).file_name()).and_then(OsStr::to_str);
    let Some(base) = base else { return builtin_profile(GENERIC) };
    let knows = |profile: &Profile| profile.commands.iter().any(|known| known == base);
    if let Some(profile) = read.iter().find(|profile| knows(profile)) {
        return Ok(profile.clone());
    }
    for name in builtin::profile_names() {
        if read.iter().any(|profile| profile.name == name) {
            continue;
        }
        let profile = builtin_profile(name)?;
        if knows(&profile) {
            return Ok(profile);
        }
    }
    builtin_profile(GENERIC)
}

fn parse(source: &Source) -> Result<Profile, PolicyError> {
    source.read(|top| {
        let name = top.required("name")?.text()?.to_owned();
        let about = top.required("about")?.text()?.to_owned();
        let commands = match top.take("commands") {
            Some(list) => {
                let word = |item: &Value<'_>| item.text().map(str::to_owned);
                list.items()?.iter().map(word).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let servers = many(top, "servers", |v| v.parsed(Mistake::Server))?.unwrap_or_default();
        let keep = tables(top, "keep", kept)?;
        let read = many(top, "read", home_path)?.unwrap_or_default();
        let caches = many(top, "caches", home_path)?.unwrap_or_default();
        let never = many(top, "never", home_path)?.unwrap_or_default();
        let read_if_clean = tables(top, "read_if_clean", clean_file)?;
        let moved = top.take("moved").map(moved).transpose()?.unwrap_or_default();
        let (mut pass, mut set) = (Vec::new(), Vec::new());
        if let Some(mut env) = top.section("env")? {
            pass = many(&mut env, "pass", |v| v.parsed(Mistake::Value))?.unwrap_or_default();
            set = env.take("set").map(variables).transpose()?.unwrap_or_default();
            env.finish()?;
        }
        Ok(Profile {
            name,
            about,
            commands,
            servers,
            keep,
            read,
            read_if_clean,
            caches,
            never,
            moved,
            pass,
            set,
        })
    })
}

fn home_path(value: &Value<'_>) -> Result<HomePath, PolicyError> {
    let word = value.text()?;
    let refused = |why: &str| value.refusal(Mistake::Path, word, &why);
    let below = |text: &str| {
        let path = PathBuf::from(text);
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        plain.then_some(path).ok_or_else(|| refused("a path is relative to the home and below it"))
    };
    match word.strip_prefix('$') {
        None if word.is_empty() => Err(refused("the home itself is never shown")),
        None => below(word).map(HomePath::BelowHome),
        Some(variable) => {
            let (variable, rest) = variable.split_once('/').unwrap_or((variable, ""));
            let Name(variable) =
                variable.parse().map_err(|_cause| refused("this is no variable"))?;
            Ok(HomePath::BelowVariable { variable, rest: below(rest)? })
        }
    }
}

/// An array of tables of what `parse` takes, each with its `why`.
fn tables<'d, T>(
    section: &mut Section<'d>,
    key: &'static str,
    parse: fn(&mut Section<'d>) -> Result<T, PolicyError>,
) -> Result<Vec<Entry<T>>, PolicyError> {
    let Some(list) = section.take(key) else { return Ok(Vec::new()) };
    list.items()?.iter().map(|item| item.table(parse)).collect()
}

fn kept(table: &mut Section<'_>) -> Result<Keep, PolicyError> {
    let path = home_path(&table.required("value")?)?;
    let protect = many(table, "protect", |v| v.parsed(Mistake::Glob))?.unwrap_or_default();
    let watch = many(table, "watch", |v| v.parsed(Mistake::Value))?.unwrap_or_default();
    Ok(Keep { path, protect, watch })
}

fn clean_file(table: &mut Section<'_>) -> Result<CleanFile, PolicyError> {
    let path = home_path(&table.required("value")?)?;
    let markers = table.required("unless")?.items()?;
    let unless =
        markers.iter().map(|v| v.text().map(str::to_lowercase)).collect::<Result<_, _>>()?;
    Ok(CleanFile { path, unless })
}

fn moved(value: Value<'_>) -> Result<Vec<Moved>, PolicyError> {
    let mut table = value.section("[moved]".to_owned())?;
    let pairs = table.take_rest().into_iter().map(|key| {
        let Name(variable) = key.parsed(Mistake::Value)?;
        let entry = key.value.entry(home_path)?;
        match entry.value {
            HomePath::BelowHome(usual) => Ok(Moved { variable, usual, why: entry.why }),
            HomePath::BelowVariable { .. } => {
                let what = "the usual place is below the home";
                Err(key.value.problem(Mistake::Path, what).into())
            }
        }
    });
    pairs.collect()
}

impl std::fmt::Display for KeyPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Display for HomePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BelowHome(path) => write!(f, "~/{}", path.display()),
            Self::BelowVariable { variable, rest } if rest.as_os_str().is_empty() => {
                write!(f, "${variable}")
            }
            Self::BelowVariable { variable, rest } => write!(f, "${variable}/{}", rest.display()),
        }
    }
}

/// The servers of a profile that the policy does not allow.
pub(super) fn unmet(
    profiles: &Profiles,
    allowed: impl Fn(&ServerName) -> bool,
) -> Vec<&Entry<HostPattern>> {
    profiles.agent.servers.iter().filter(|entry| !allowed(entry.value.base())).collect()
}
