//! What of the user's home the agent's tools need, as far as it exists.
//!
//! The home inside is a private one. Nothing of the user's is in it but what a profile lists, what
//! `PATH` names and what the command itself is; credentials are in none of these, whoever lists
//! them. Where the account's variables point elsewhere (`CARGO_HOME`), they are followed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::fold::folds_case;
use super::program;
use super::real::real_path;
use super::repository::{closed_in, linked_repository};
use crate::policy::{CleanFile, Cover, FileRules, HomePath, Keep, KeyPath, Profiles};
use crate::surroundings::Surroundings;

/// What every jail shows read-only where the host has it.
pub const SYSTEM_TREES: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix",
    "/gnu",
    "/snap",
    "/home/linuxbrew/.linuxbrew",
];

/// Files larger than this are not looked through for secrets, and so not shown.
const MAX_CLEAN: u64 = 1 << 20;

/// The parts of a home that a jail shows, each where it is on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HomeView {
    /// The home without links. Inside it is a private directory at this path.
    pub home: PathBuf,
    /// Read-write: logins and state of the agent.
    pub keep: Vec<Shown>,
    /// What of the kept directories others would run.
    pub settings: Vec<Settings>,
    /// Kept files that name programs in some places.
    pub watched: Vec<Watched>,
    /// Read-only: toolchains, settings without secrets, the command. May lie outside of the home.
    pub read: Vec<Shown>,
    /// Writable in a private layer over the host's content.
    pub caches: Vec<Shown>,
    /// `PATH` inside: the caller's, without what is not visible there.
    pub path: Vec<PathBuf>,
}

/// The names in a kept directory that the agent may not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub dir: Shown,
    /// Relative to the directory.
    pub protect: Cover,
}

/// A kept file that the agent writes, and where others would run what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    pub file: Shown,
    pub keys: Vec<KeyPath>,
}

/// Something of the host's, and where the agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shown {
    /// The path inside. Below the home it begins with [`HomeView::home`].
    pub at: PathBuf,
    /// The same on the host, without links.
    pub from: PathBuf,
}

/// Looks for what `profiles` list, what is on `PATH` and what `command` is.
///
/// `granted` are the paths that the policy shows beside: programs in them are found as well.
#[must_use]
pub fn probe(
    surroundings: &Surroundings,
    profiles: &Profiles,
    workspace: &Path,
    granted: &[&Path],
    command: Option<&OsStr>,
) -> HomeView {
    let home = real_path(&surroundings.home).unwrap_or_else(|_| surroundings.home.clone());
    // A home of `/` is nobody's: showing parts of it would open the machine.
    if home == Path::new("/") {
        let path = search_path(surroundings, granted, workspace);
        return HomeView { path, ..HomeView::default() };
    }
    let looking = Looking::new(surroundings, profiles, home, workspace);
    let all = |pick: fn(&crate::policy::Profile) -> &[crate::policy::Entry<HomePath>]| {
        let listed = profiles.iter().flat_map(move |profile| pick(profile).iter());
        unique(listed.filter_map(|entry| looking.shown(&looking.place(&entry.value)?)).collect())
    };
    let (mut keep, mut settings, mut watched) = (Vec::new(), Vec::new(), Vec::new());
    for Keep { path, protect, watch } in profiles.iter().flat_map(|p| &p.keep).map(|e| &e.value) {
        let Some(kept) = looking.place(path).and_then(|place| looking.shown(&place)) else {
            continue;
        };
        if !protect.is_empty() && kept.from.is_dir() {
            let protect = Cover::of(vec![protect.clone()]);
            let protect = if folds_case(&kept.from) { protect.folded() } else { protect };
            settings.push(Settings { dir: kept.clone(), protect });
        }
        if !watch.is_empty() {
            let keys = watch.iter().map(|entry| entry.value.clone()).collect();
            watched.push(Watched { file: kept.clone(), keys });
        }
        keep.push(kept);
    }
    let keep = unique(keep);
    let caches = all(|profile| &profile.caches);
    let mut read = all(|profile| &profile.read);
    let clean = profiles.iter().flat_map(|profile| profile.read_if_clean.iter());
    read.extend(clean.filter_map(|entry| looking.clean(&entry.value)));
    // Elsewhere a directory on `PATH` may be anything; a home's own are known to be the user's.
    for directory in looking.path_entries().iter().filter(|dir| dir.starts_with(&looking.home)) {
        read.extend(looking.with_siblings(directory));
    }
    let found = command
        .and_then(|command| program::find(command, &surroundings.cwd, &looking.path_entries()));
    for part in found.iter().flat_map(program::Program::parts) {
        read.extend(looking.with_siblings(&part));
    }
    let read = smallest(read, &[keep.as_slice(), caches.as_slice()]);
    let shown = keep.iter().chain(&read).chain(&caches).map(|shown| shown.at.as_path());
    let visible: Vec<&Path> = shown.chain(granted.iter().copied()).collect();
    let path = search_path(surroundings, &visible, workspace);
    HomeView { home: looking.home, keep, settings, watched, read, caches, path }
}

impl HomeView {
    /// With what git needs where the workspace is a linked worktree of a repository elsewhere. What
    /// `files` grants of it by hand stays as it is granted.
    #[must_use]
    pub fn with_repository(mut self, workspace: &Path, files: &FileRules) -> Self {
        let Some(common) = linked_repository(workspace) else { return self };
        if files.readable(&common).is_some() {
            return self;
        }
        let shown = Shown { at: common.clone(), from: common.clone() };
        if files.writable(workspace).is_some() {
            self.keep.push(shown);
            self.settings.push(closed_in(&common));
        } else {
            self.read.push(shown);
        }
        self
    }
}

/// What a probe knows of the account.
struct Looking<'s> {
    surroundings: &'s Surroundings,
    home: PathBuf,
    workspace: &'s Path,
    /// Places that are never shown, by name and by where they lead.
    never: BTreeSet<PathBuf>,
    /// From a usual place to the one that a variable names.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl<'s> Looking<'s> {
    fn new(
        surroundings: &'s Surroundings,
        profiles: &Profiles,
        home: PathBuf,
        workspace: &'s Path,
    ) -> Self {
        let moved = profiles.iter().flat_map(|profile| profile.moved.iter()).filter_map(|moved| {
            let to = surroundings.path_variable(&moved.variable)?;
            Some((moved.usual.clone(), to.to_owned()))
        });
        let moved = moved.collect();
        let mut looking = Self { surroundings, home, workspace, never: BTreeSet::new(), moved };
        let listed = profiles.iter().flat_map(|profile| profile.never.iter());
        let places = listed.filter_map(|entry| looking.place(&entry.value));
        let own = [surroundings.state_dir(), surroundings.config_dir()];
        let mut never: BTreeSet<PathBuf> = places.chain(own).collect();
        let real: Vec<PathBuf> = never.iter().filter_map(|path| real_path(path).ok()).collect();
        never.extend(real);
        looking.never = never;
        looking
    }

    /// Where a listed path is for this account.
    fn place(&self, listed: &HomePath) -> Option<PathBuf> {
        match listed {
            HomePath::BelowHome(path) => {
                let moved = self.moved.iter().find_map(|(usual, to)| {
                    let rest = path.strip_prefix(usual).ok()?;
                    Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
                });
                Some(moved.map_or_else(|| self.home.join(path), |path| self.in_real_home(&path)))
            }
            HomePath::BelowVariable { variable, rest } => {
                let directory = self.surroundings.path_variable(variable)?;
                let place = directory.components().chain(rest.components()).collect::<PathBuf>();
                Some(self.in_real_home(&place))
            }
        }
    }

    /// A path by the home's own name, written by its real one.
    fn in_real_home(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.surroundings.home)
            .map_or_else(|_| path.to_owned(), |rest| self.home.join(rest))
    }

    /// What is at `at`, unless it is not there, visible anyway, or never to be shown.
    fn shown(&self, at: &Path) -> Option<Shown> {
        let from = real_path(at).ok()?;
        let fits = |path: &Path| {
            !self.home.starts_with(path)
                && !self.workspace.starts_with(path)
                && !self
                    .never
                    .iter()
                    .any(|never| never.starts_with(path) || path.starts_with(never))
        };
        let needless = at.starts_with(self.workspace) || is_system(at);
        (fits(at) && fits(&from) && !needless).then(|| Shown { at: at.to_owned(), from })
    }

    /// Shows a settings file only when nothing in it looks like a secret.
    fn clean(&self, file: &CleanFile) -> Option<Shown> {
        let shown = self.shown(&self.place(&file.path)?)?;
        let metadata = fs::metadata(&shown.from).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_CLEAN {
            return None;
        }
        let text = fs::read_to_string(&shown.from).ok()?.to_lowercase();
        let marked = file.unless.iter().any(|marker| text.contains(marker));
        (!marked && !names_a_user(&text)).then_some(shown)
    }

    /// The caller's `PATH`, without what is relative: an agent could write there.
    fn path_entries(&self) -> Vec<PathBuf> {
        path_entries(self.surroundings).iter().map(|path| self.in_real_home(path)).collect()
    }

    /// A directory of programs, and what programs look for beside it (`../lib`).
    fn with_siblings(&self, place: &Path) -> Vec<Shown> {
        let mut places = vec![place.to_owned()];
        if place.file_name() == Some(OsStr::new("bin"))
            && let Some(prefix) = place.parent().filter(|prefix| self.is_prefix(prefix))
        {
            let beside = ["lib", "lib64", "libexec", "share", "include", "pkg", "pyvenv.cfg"];
            places.extend(beside.iter().map(|name| prefix.join(name)));
        }
        places.iter().filter_map(|place| self.shown(place)).collect()
    }

    /// Whether `directory` is where something was installed, and not one that collects the user's
    /// own things: `~/.local` has a `share` of its own.
    fn is_prefix(&self, directory: &Path) -> bool {
        let common = [self.home.clone(), self.home.join(".local"), self.home.join(".cargo")];
        !common.iter().any(|common| common == directory)
    }
}

fn path_entries(surroundings: &Surroundings) -> Vec<PathBuf> {
    let path = surroundings.env.get(OsStr::new("PATH")).map(std::env::split_paths);
    path.into_iter().flatten().filter(|entry| entry.is_absolute()).collect()
}

fn search_path(surroundings: &Surroundings, visible: &[&Path], workspace: &Path) -> Vec<PathBuf> {
    let real_home = real_path(&surroundings.home).ok();
    let mut path = Vec::new();
    for entry in path_entries(surroundings) {
        let inside = match (entry.strip_prefix(&surroundings.home), &real_home) {
            (Ok(rest), Some(home)) if surroundings.home != Path::new("/") => home.join(rest),
            _ => entry,
        };
        let seen = is_system(&inside)
            || inside.starts_with(workspace)
            || visible.iter().any(|shown| inside.starts_with(shown));
        if seen && inside.is_dir() && !path.contains(&inside) {
            path.push(inside);
        }
    }
    path
}

fn is_system(path: &Path) -> bool {
    SYSTEM_TREES.iter().any(|tree| path.starts_with(tree))
}

/// Whether an address in `text` carries a user, as in `https://user:word@server`.
fn names_a_user(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let end = |c: char| c == '/' || c == '"' || c == '\'' || c.is_whitespace();
        rest.split(end).next().unwrap_or_default().contains('@')
    })
}

fn unique(mut shown: Vec<Shown>) -> Vec<Shown> {
    shown.sort();
    shown.dedup_by(|a, b| a.at == b.at);
    shown
}

/// Leaves out what something else shows already.
fn smallest(shown: Vec<Shown>, others: &[&[Shown]]) -> Vec<Shown> {
    let shown = unique(shown);
    let covered = |one: &Shown| {
        let above = |other: &&Shown| other.at != one.at && one.at.starts_with(&other.at);
        shown.iter().any(|other| above(&other))
            || others.iter().any(|list| list.iter().any(|other| one.at.starts_with(&other.at)))
    };
    shown.iter().filter(|one| !covered(one)).cloned().collect()
}
