//! Finds what the policy closes: one walk over the workspace before the launch.
//!
//! Nothing is left out of the walk, since what is not found here is not covered. A directory that
//! matches as a whole is one match and is not entered. A directory that cannot be read is hidden:
//! whoever owns it could open it up again from inside.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::fold::folds_case;
use super::hooks::{AccountConfig, hooks_paths};
use super::real::real_path;
use super::sights::Sights;
use super::walk::{FEW, Kind, Next, Unreadable, walk};
use crate::policy::{FileRules, is_literal};

/// What is in the workspace that the policy closes. Paths are relative to it, sorted, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matches {
    pub hidden: Vec<Match>,
    /// Without what is hidden as well.
    pub protected: Vec<Match>,
}

/// One thing to cover.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    pub path: PathBuf,
    pub kind: Kind,
}

/// The workspace cannot be walked.
#[derive(Debug, thiserror::Error)]
#[error("cannot look through the workspace at {}", path.display())]
pub struct ScanError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// What there is before a launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    pub matches: Matches,
    /// The policy's rules as they hold here: what it says of git directories is said of those that
    /// there are, and the directories of hooks that they name are protected.
    pub files: FileRules,
    pub sights: Sights,
    /// The directories of hooks that repositories name.
    pub hooks: BTreeSet<PathBuf>,
}

/// Walks `workspace`, a path without links.
pub fn scan(
    workspace: &Path,
    files: &FileRules,
    account: &AccountConfig,
) -> Result<Survey, ScanError> {
    scan_alone(FEW, workspace, files, account)
}

/// [`scan`], on this thread up to `few` names.
pub(super) fn scan_alone(
    few: usize,
    workspace: &Path,
    files: &FileRules,
    account: &AccountConfig,
) -> Result<Survey, ScanError> {
    let folded = folds_case(workspace).then(|| files.folded());
    let files = folded.as_ref().unwrap_or(files);
    let mut seen = look(few, workspace, workspace, files, |_| {})?;
    seen.sights.settle(workspace);
    for Unreadable { path, cause } in std::mem::take(&mut seen.unreadable) {
        let path = path.unwrap_or_else(|| workspace.to_owned());
        // What vanished during the walk is not there to be covered. What cannot be read is hidden.
        match (cause.kind(), path.strip_prefix(workspace)) {
            (io::ErrorKind::NotFound, Ok(below)) if !below.as_os_str().is_empty() => {}
            (io::ErrorKind::PermissionDenied, Ok(below)) if !below.as_os_str().is_empty() => {
                seen.hidden.push(Match { path: below.to_owned(), kind: Kind::Dir });
            }
            _ => return Err(ScanError { path, cause }),
        }
    }
    let hooks = hooks_paths(workspace, &seen.sights.git_dirs, account);
    let Sights { git_dirs, pointers, .. } = &seen.sights;
    let [places, pointers] = [&hooks, pointers].map(|paths| paths.iter().map(PathBuf::as_path));
    let rules = files.in_workspace(git_dirs, places, pointers);
    add_in_repositories(workspace, files, &rules, &hooks, &mut seen);
    add_targets(workspace, &mut seen.hidden);
    add_targets(workspace, &mut seen.protected);
    add_other_names(workspace, &mut seen.hidden);
    let Seen { hidden, protected, sights, .. } = seen;
    Ok(Survey { matches: Matches::settle(hidden, protected), files: rules, sights, hooks })
}

/// What one walk saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Everything that a pattern matches, also below what is covered as a whole.
    pub hidden: Vec<Match>,
    pub protected: Vec<Match>,
    pub sights: Sights,
    pub unreadable: Vec<Unreadable>,
}

impl Seen {
    /// Takes in what a walk in another place saw.
    pub fn add(&mut self, other: Self) {
        self.hidden.extend(other.hidden);
        self.protected.extend(other.protected);
        self.sights.add(other.sights);
        self.unreadable.extend(other.unreadable);
    }
}

/// Looks at everything below `root`, which is `workspace` or lies in it, and shows each file that
/// is neither directory nor link to `on_file`. What is hidden is not entered.
pub fn look(
    few: usize,
    root: &Path,
    workspace: &Path,
    files: &FileRules,
    on_file: impl Fn(&Path) + Sync,
) -> Result<Seen, ScanError> {
    let sieve = files.sieve().map_err(|cause| ScanError {
        path: workspace.to_owned(),
        cause: io::Error::other(cause),
    })?;
    let seen = Mutex::new(Seen::default());
    let seen_now = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    walk(few, root, |entry| {
        let (path, kind) = match entry {
            Ok(found) => found,
            Err(unreadable) => {
                seen_now().unreadable.push(unreadable);
                return Next::Onward;
            }
        };
        let Ok(below) = path.strip_prefix(workspace) else { return Next::Onward };
        if Sights::concerns(below, kind) {
            seen_now().sights.see(workspace, below, kind);
        }
        if kind == Kind::File {
            on_file(&path);
        }
        if !sieve.may_match(below) {
            return Next::Onward;
        }
        let hit = || Match { path: below.to_owned(), kind };
        if files.hide.covers_unit(below).is_some() {
            seen_now().hidden.push(hit());
            Next::Skip
        } else if files.protect.covers_unit(below).is_some() {
            // Something below a protected directory may be hidden, which is more.
            seen_now().protected.push(hit());
            Next::Onward
        } else {
            Next::Onward
        }
    });
    Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What `files` says of git directories, which the walk did not know yet.
fn add_in_repositories(
    workspace: &Path,
    files: &FileRules,
    rules: &FileRules,
    hooks: &BTreeSet<PathBuf>,
    seen: &mut Seen,
) {
    let covers = [&files.hide, &files.protect];
    let entries = || covers.iter().flat_map(|cover| cover.lists()).flatten();
    let mut places: BTreeSet<PathBuf> = hooks.union(&seen.sights.pointers).cloned().collect();
    for tail in entries().filter_map(|entry| entry.value.in_git_directory()) {
        let body = tail.strip_suffix("/**").unwrap_or(tail);
        for git_dir in &seen.sights.git_dirs {
            if tail == "**" {
                places.insert(git_dir.clone());
            } else if is_literal(body) {
                places.insert(git_dir.join(body));
            } else {
                let below = everything_below(&workspace.join(git_dir));
                places.extend(below.iter().map(|path| git_dir.join(path)));
            }
        }
    }
    for path in places {
        let Ok(metadata) = fs::symlink_metadata(workspace.join(&path)) else { continue };
        let kind = Kind::of(Some(metadata.file_type()));
        if rules.hide.covers_unit(&path).is_some() {
            seen.hidden.push(Match { path, kind });
        } else if rules.protect.covers_unit(&path).is_some() {
            seen.protected.push(Match { path, kind });
        }
    }
}

/// Every directory below `root`, relative to it.
#[must_use]
pub fn directories(root: &Path) -> Vec<PathBuf> {
    listed(root, |kind| kind == Kind::Dir)
}

/// Everything below `root`, relative to it.
#[must_use]
pub fn everything_below(root: &Path) -> Vec<PathBuf> {
    listed(root, |_| true)
}

fn listed(root: &Path, is_wanted: impl Fn(Kind) -> bool + Sync) -> Vec<PathBuf> {
    let paths = Mutex::new(Vec::new());
    walk(FEW, root, |entry| {
        if let Ok((path, kind)) = &entry
            && is_wanted(*kind)
            && let Ok(below) = path.strip_prefix(root)
        {
            paths.lock().unwrap_or_else(PoisonError::into_inner).push(below.to_owned());
        }
        Next::Onward
    });
    paths.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A link that matches leads to something that is reachable by its own name as well.
fn add_targets(workspace: &Path, matches: &mut Vec<Match>) {
    let targets: Vec<Match> = matches
        .iter()
        .filter(|hit| hit.kind == Kind::Link)
        .filter_map(|link| {
            let target = real_path(&workspace.join(&link.path)).ok()?;
            let below = target.strip_prefix(workspace).ok()?;
            let kind = if target.is_dir() { Kind::Dir } else { Kind::File };
            // A link to the workspace itself would cover everything.
            (!below.as_os_str().is_empty()).then(|| Match { path: below.to_owned(), kind })
        })
        .collect();
    matches.extend(targets);
}

/// A hidden file with a second name in the workspace is readable under that name. The second walk
/// is only made when a link count says that there may be one.
fn add_other_names(workspace: &Path, hidden: &mut Vec<Match>) {
    let inodes: Vec<(u64, u64)> = hidden
        .iter()
        .filter(|hit| hit.kind == Kind::File)
        .filter_map(|hit| fs::symlink_metadata(workspace.join(&hit.path)).ok())
        .filter(|metadata| metadata.nlink() > 1)
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect();
    if inodes.is_empty() {
        return;
    }
    let names = Mutex::new(Vec::new());
    walk(FEW, workspace, |entry| {
        let Ok((path, _)) = entry else { return Next::Onward };
        let inode = fs::symlink_metadata(&path).map(|metadata| (metadata.dev(), metadata.ino()));
        let is_one = inode.is_ok_and(|inode| inodes.contains(&inode));
        if let (true, Ok(below)) = (is_one, path.strip_prefix(workspace)) {
            let hit = Match { path: below.to_owned(), kind: Kind::File };
            names.lock().unwrap_or_else(PoisonError::into_inner).push(hit);
        }
        Next::Onward
    });
    hidden.extend(names.into_inner().unwrap_or_else(PoisonError::into_inner));
}

impl Matches {
    /// The smallest set: nothing below a directory that is covered alike or more.
    #[must_use]
    pub fn settle(mut hidden: Vec<Match>, mut protected: Vec<Match>) -> Self {
        let hidden = smallest(&mut hidden);
        let mut protected = smallest(&mut protected);
        let is_hidden = |path: &Path| {
            hidden
                .iter()
                .any(|hit| hit.path == path || hit.kind == Kind::Dir && path.starts_with(&hit.path))
        };
        protected.retain(|hit| !is_hidden(&hit.path));
        Self { hidden, protected }
    }
}

/// Sorted by path, so a directory comes right before what is below it.
fn smallest(matches: &mut Vec<Match>) -> Vec<Match> {
    matches.sort();
    let mut kept: Vec<Match> = Vec::with_capacity(matches.len());
    let mut above: Option<PathBuf> = None;
    for hit in matches.drain(..) {
        if above.as_ref().is_some_and(|dir| hit.path.starts_with(dir)) {
            continue;
        }
        if kept.last().is_some_and(|last| last.path == hit.path) {
            continue;
        }
        above = (hit.kind == Kind::Dir).then(|| hit.path.clone());
        kept.push(hit);
    }
    kept
}
