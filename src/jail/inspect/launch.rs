//! The record of a launch: what a workspace held before the agent ran, and under which rules.
//!
//! It lies in the run's directory, durable before anything runs, and is removed once the run was
//! inspected. Beside names and identities it holds the hashes of small files; it is as private as
//! the ledger, and never holds their content.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kvro_ledger::state::StateError;
use kvro_ledger::{RunId, StateDir};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::identity::{Identity, Process, Raw};
use super::settings::Settings;
use crate::git;
use crate::policy::{Cover, Entry, FileRules, GlobError, GlobList, PathGlob};
use crate::workspace::{Kind, Match, Survey, Watched, read_small};

pub(super) const NAME: &str = "launch";
/// What the file begins with: another version would be another format.
const MAGIC: &[u8] = b"kvro-launch 2\n";
/// Larger files are known by size and time.
const HASHED: u64 = 64 << 10;
/// A record is no larger than this, whatever a workspace holds.
const LARGEST: u64 = 256 << 20;

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the record of the launch cannot be kept")]
    State(#[source] StateError),
    #[error("cannot look at the workspace")]
    Look(#[source] io::Error),
    #[error("cannot write or read the record of the launch")]
    File(#[source] io::Error),
    #[error("the record of the launch is not one")]
    Garbled,
    #[error("the record of the launch holds no rules")]
    Rules(#[source] GlobError),
}

/// What was there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    pub(super) workspace: Raw,
    pub(super) place: Identity,
    /// By the clock that stamps files, before the agent ran.
    pub(super) taken: (i64, i64),
    /// Pid 1 of the jail.
    pub(super) pid_1: Process,
    hide: Vec<Vec<String>>,
    protect: Vec<Vec<String>>,
    hooks: BTreeSet<Raw>,
    folds_case: bool,
    /// Directories in which names are guarded.
    pub(super) guarded: BTreeSet<Raw>,
    pub(super) names: BTreeMap<Raw, Known>,
    /// The directories above the names.
    pub(super) above: BTreeMap<Raw, Identity>,
    pub(super) git_dirs: BTreeMap<Raw, Identity>,
    /// What each `.git` that is no directory says.
    pub(super) pointers: BTreeMap<Raw, Vec<u8>>,
    pub(super) links: BTreeMap<Raw, Raw>,
    /// The commands in plans of rebases.
    pub(super) todos: BTreeMap<Raw, Vec<String>>,
    /// Kept files of the agent's, outside of the workspace.
    pub(super) settings: BTreeMap<Raw, Settings>,
}

/// Something at a name that the policy closes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) kind: Kind,
    pub(super) closure: Closure,
    pub(super) identity: Identity,
    pub(super) content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Closure {
    Hidden,
    Protected,
}

/// How the content of a file is told from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    sha256: Option<[u8; 32]>,
}

impl Content {
    fn of(path: &Path, metadata: &Metadata) -> Self {
        let is_small = metadata.is_file() && metadata.len() <= HASHED;
        let bytes = if is_small { read_small(path).ok() } else { None };
        Self {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            sha256: bytes.map(|bytes| Sha256::digest(bytes).into()),
        }
    }

    /// A new name for a file, or other rights, change nothing of what it says.
    pub(super) fn is_same(&self, path: &Path, metadata: &Metadata) -> bool {
        if self.changed == (metadata.ctime(), metadata.ctime_nsec()) {
            return true;
        }
        let now = Self::of(path, metadata);
        match (self.sha256, now.sha256) {
            (Some(then), Some(now)) => then == now,
            _ => (self.size, self.modified) == (now.size, now.modified),
        }
    }
}

/// What there is before the agent runs.
#[derive(Debug, Clone, Copy)]
pub struct Before<'b> {
    pub workspace: &'b Path,
    /// The policy's own rules.
    pub files: &'b FileRules,
    /// What was found in the workspace under them.
    pub survey: &'b Survey,
    /// The guarded directories, relative to the workspace.
    pub guarded: &'b BTreeSet<PathBuf>,
    pub watched: &'b [Watched],
    pub pid_1: Process,
}

impl Launch {
    /// Writes down what is there, and makes it durable beside the ledger of `run`.
    pub fn keep(state: &StateDir, run: &RunId, before: Before<'_>) -> Result<(), RecordError> {
        let mut file = state.create_beside(run, NAME).map_err(RecordError::State)?;
        // The kernel stamps the workspace's files by the same clock.
        let stamp = file.metadata().map_err(RecordError::File)?;
        let mut launch = Self::look(before).map_err(RecordError::Look)?;
        launch.taken = (stamp.ctime(), stamp.ctime_nsec());
        let words = postcard::to_stdvec(&launch)
            .map_err(|error| RecordError::File(io::Error::other(error)))?;
        let written = file.write_all(MAGIC).and_then(|()| file.write_all(&words));
        written.and_then(|()| file.sync_data()).map_err(RecordError::File)
    }

    fn look(before: Before<'_>) -> io::Result<Self> {
        let Before { workspace, files, survey, guarded, watched, pid_1 } = before;
        let identity = |path: &Path| {
            let metadata = fs::symlink_metadata(workspace.join(path)).ok()?;
            Some((Raw::from(path), Identity::of(&metadata)))
        };
        let hidden = survey.matches.hidden.iter().map(|hit| (hit, Closure::Hidden));
        let protected = survey.matches.protected.iter().map(|hit| (hit, Closure::Protected));
        let names: BTreeMap<Raw, Known> = hidden
            .chain(protected)
            .filter_map(|(hit, closure)| known(workspace, hit, closure))
            .collect();
        let sights = &survey.sights;
        let all = names.keys().map(|name| &name.0).chain(&sights.git_dirs);
        let above: BTreeSet<&Path> = all.flat_map(|path| path.ancestors().skip(1)).collect();
        let above = above.into_iter().filter(|path| !path.as_os_str().is_empty());
        let pointer = |path: &PathBuf| Some((Raw::from(path.as_path()), pointer(workspace, path)?));
        let todo = |git_dir: &PathBuf| {
            let path = git_dir.join(TODO);
            let commands = git::commands(&read_small(&workspace.join(&path)).ok()?);
            Some((Raw(path), commands))
        };
        let link = |(path, target): (&PathBuf, &PathBuf)| (Raw(path.clone()), Raw(target.clone()));
        Ok(Self {
            workspace: Raw::from(workspace),
            place: Identity::of(&fs::symlink_metadata(workspace)?),
            taken: (0, 0),
            pid_1,
            hide: typed(&files.hide),
            protect: typed(&files.protect),
            hooks: survey.hooks.iter().map(|path| Raw::from(path.as_path())).collect(),
            folds_case: survey.files.folds_case(),
            guarded: guarded.iter().map(|path| Raw::from(path.as_path())).collect(),
            above: above.filter_map(identity).collect(),
            git_dirs: sights.git_dirs.iter().filter_map(|path| identity(path)).collect(),
            pointers: sights.pointers.iter().filter_map(pointer).collect(),
            links: sights.links.iter().map(link).collect(),
            todos: sights.git_dirs.iter().filter_map(todo).collect(),
            settings: watched
                .iter()
                .map(|one| (Raw::from(one.file.from.as_path()), Settings::of(one)))
                .collect(),
            names,
        })
    }

    /// The record of `run`, if there is one.
    pub(super) fn read(state: &StateDir, run: &RunId) -> Result<Option<Self>, RecordError> {
        let file = match state.open_beside(run, NAME) {
            Ok(file) => file,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(RecordError::State(error)),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).map_err(RecordError::File)?;
        let words = bytes.strip_prefix(MAGIC).ok_or(RecordError::Garbled)?;
        postcard::from_bytes(words).map(Some).map_err(|_error| RecordError::Garbled)
    }

    /// The rules that were in force, as they held in that workspace.
    pub(super) fn rules(&self) -> Result<FileRules, RecordError> {
        let cover = |lists: &Vec<Vec<String>>| -> Result<Cover, GlobError> {
            let list = |words: &Vec<String>| -> Result<GlobList, GlobError> {
                words.iter().map(|word| word.parse::<PathGlob>().map(Entry::typed)).collect()
            };
            Ok(Cover::of(lists.iter().map(list).collect::<Result<_, _>>()?))
        };
        let git_dirs = self.git_dirs.keys().map(|path| path.0.clone()).collect();
        let hide = cover(&self.hide).map_err(RecordError::Rules)?;
        let protect = cover(&self.protect).map_err(RecordError::Rules)?;
        let files = FileRules { hide, protect, ..FileRules::default() };
        let hooks = self.hooks.iter().map(|dir| dir.0.as_path());
        let pointers = self.pointers.keys().map(|path| path.0.as_path());
        Ok(files.folded_if(self.folds_case).in_workspace(&git_dirs, hooks, pointers))
    }
}

/// Where git keeps the plan of a rebase, below a git directory.
pub(super) const TODO: &str = "rebase-merge/git-rebase-todo";

/// What the `.git` at `path` says, which is a file or a link.
pub(super) fn pointer(workspace: &Path, path: &Path) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let path = workspace.join(path);
    match fs::read_link(&path) {
        Ok(target) => Some(target.into_os_string().into_vec()),
        Err(_no_link) => read_small(&path).ok(),
    }
}

fn known(workspace: &Path, hit: &Match, closure: Closure) -> Option<(Raw, Known)> {
    let path = workspace.join(&hit.path);
    let metadata = fs::symlink_metadata(&path).ok()?;
    let known = Known {
        kind: hit.kind,
        closure,
        identity: Identity::of(&metadata),
        content: Content::of(&path, &metadata),
    };
    Some((Raw::from(hit.path.as_path()), known))
}

fn typed(cover: &Cover) -> Vec<Vec<String>> {
    let words = |list: &GlobList| list.iter().map(|entry| entry.value.to_string()).collect();
    cover.lists().iter().map(words).collect()
}
