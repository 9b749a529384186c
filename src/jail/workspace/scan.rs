//! Finds what the policy closes: one walk over the workspace before the launch.
//!
//! Nothing is left out of the walk, since what is not found here is not covered. A directory that
//! matches as a whole is one match and is not entered. A directory that cannot be read is hidden:
//! whoever owns it could open it up again from inside.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use globset::{GlobSet, GlobSetBuilder};

use super::real::real_path;
use super::walk::{Entry, FEW, Kind, Next, Unreadable, walk};
use crate::policy::FileRules;

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

/// Walks `workspace`, a path without links.
pub fn scan(workspace: &Path, files: &FileRules) -> Result<Matches, ScanError> {
    scan_alone(FEW, workspace, files)
}

/// [`scan`], on this thread up to `few` names.
pub(super) fn scan_alone(
    few: usize,
    workspace: &Path,
    files: &FileRules,
) -> Result<Matches, ScanError> {
    let any = any_of(files).map_err(|cause| ScanError {
        path: workspace.to_owned(),
        cause: io::Error::other(cause),
    })?;
    let found = Mutex::new(Found::default());
    walk(few, workspace, |entry| match visit(workspace, files, &any, entry) {
        Step::Onward => Next::Onward,
        step @ (Step::Hide(_) | Step::Protect(_) | Step::Fail(_)) => {
            found.lock().unwrap_or_else(PoisonError::into_inner).take(step)
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = found.failed.take() {
        return Err(error);
    }
    add_targets(workspace, &mut found.hidden);
    add_targets(workspace, &mut found.protected);
    add_other_names(workspace, &mut found.hidden);
    Ok(found.settle())
}

/// What is closed at and below `dir`, a directory of the workspace that the host put there. Paths
/// are relative to the workspace.
pub fn closed_below(workspace: &Path, dir: &Path, files: &FileRules) -> Vec<PathBuf> {
    let closed = Mutex::new(Vec::new());
    walk(FEW, &workspace.join(dir), |entry| {
        let Ok((path, _)) = entry else { return Next::Onward };
        let Ok(below) = path.strip_prefix(workspace) else { return Next::Onward };
        let is_hidden = files.hide.covers_unit(below).is_some();
        if is_hidden || files.protect.covers_unit(below).is_some() {
            closed.lock().unwrap_or_else(PoisonError::into_inner).push(below.to_owned());
        }
        if is_hidden { Next::Skip } else { Next::Onward }
    });
    closed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Found {
    hidden: Vec<Match>,
    protected: Vec<Match>,
    failed: Option<ScanError>,
}

impl Found {
    /// Keeps what `step` found and says how to go on.
    fn take(&mut self, step: Step) -> Next {
        match step {
            Step::Onward => Next::Onward,
            Step::Hide(hit) => {
                self.hidden.push(hit);
                Next::Skip
            }
            // Something below a protected directory may be hidden, which is more.
            Step::Protect(hit) => {
                self.protected.push(hit);
                Next::Onward
            }
            Step::Fail(error) => {
                self.failed.get_or_insert(error);
                Next::Stop
            }
        }
    }
}

enum Step {
    Onward,
    Hide(Match),
    Protect(Match),
    Fail(ScanError),
}

/// All patterns at once, since nearly every path matches none.
fn any_of(files: &FileRules) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in files.hide.globs().chain(files.protect.globs()) {
        set.add(glob.clone());
    }
    set.build()
}

fn visit(workspace: &Path, files: &FileRules, any: &GlobSet, entry: Entry) -> Step {
    let (path, kind) = match entry {
        Ok(seen) => seen,
        Err(unreadable) => return closed(workspace, unreadable),
    };
    let Ok(path) = path.strip_prefix(workspace) else {
        return Step::Onward;
    };
    if !any.is_match(path) {
        return Step::Onward;
    }
    let hit = || Match { path: path.to_owned(), kind };
    if files.hide.covers_unit(path).is_some() {
        Step::Hide(hit())
    } else if files.protect.covers_unit(path).is_some() {
        Step::Protect(hit())
    } else {
        Step::Onward
    }
}

/// What vanished during the walk is not there to be covered. What cannot be read is hidden.
fn closed(workspace: &Path, Unreadable { path, cause }: Unreadable) -> Step {
    let path = path.unwrap_or_else(|| workspace.to_owned());
    match (cause.kind(), path.strip_prefix(workspace)) {
        (io::ErrorKind::NotFound, Ok(below)) if !below.as_os_str().is_empty() => Step::Onward,
        (io::ErrorKind::PermissionDenied, Ok(below)) if !below.as_os_str().is_empty() => {
            Step::Hide(Match { path: below.to_owned(), kind: Kind::Dir })
        }
        _ => Step::Fail(ScanError { path, cause }),
    }
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

impl Found {
    /// The smallest set: nothing below a directory that is covered alike or more.
    fn settle(mut self) -> Matches {
        let hidden = smallest(&mut self.hidden);
        let mut protected = smallest(&mut self.protected);
        let is_hidden = |path: &Path| {
            hidden
                .iter()
                .any(|hit| hit.path == path || hit.kind == Kind::Dir && path.starts_with(&hit.path))
        };
        protected.retain(|hit| !is_hidden(&hit.path));
        Matches { hidden, protected }
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
