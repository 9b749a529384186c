//! A walk over everything below a directory, in no particular order.
//!
//! Nothing is left out (hidden files, ignored files, version control, other filesystems mounted
//! below), and no link is followed.

use std::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};

use ignore::{WalkBuilder, WalkState};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

/// What a name is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Dir,
    /// Anything else that a file can be mounted over: also a FIFO, a socket, a device.
    File,
    /// A link. A mount over it would land on its target.
    Link,
}

impl Kind {
    pub(crate) fn of(file_type: Option<FileType>) -> Self {
        match file_type {
            Some(kind) if kind.is_dir() => Self::Dir,
            Some(kind) if kind.is_symlink() => Self::Link,
            Some(_) | None => Self::File,
        }
    }
}

/// Something below the root, or what cannot be looked at.
pub(super) type Entry = Result<(PathBuf, Kind), Unreadable>;

/// Something that cannot be looked at.
#[derive(Debug)]
pub struct Unreadable {
    /// `None` where it is the walk itself that fails.
    pub path: Option<PathBuf>,
    pub cause: io::Error,
}

/// How a walk goes on behind an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Onward,
    /// Without what is below this one.
    Skip,
}

/// So many names one thread has looked at before others could be started.
pub const FEW: usize = 2000;

/// Shows everything below `root` to `visit`: on this thread up to `few` names, from the beginning
/// again on as many threads as there are processors where there are more. What is shown twice is
/// for the visitor to see.
pub(super) fn walk(few: usize, root: &Path, visit: impl Fn(Entry) -> Next + Sync) {
    if !is_done_alone(few, root, &visit) {
        walk_together(root, visit);
    }
}

fn is_done_alone(few: usize, root: &Path, visit: impl Fn(Entry) -> Next) -> bool {
    let mut entries = WalkDir::new(root).min_depth(1).into_iter();
    for _ in 0..few {
        let Some(entry) = entries.next() else { return true };
        let entry = entry.map(|entry| {
            let kind = Kind::of(Some(entry.file_type()));
            (entry.into_path(), kind)
        });
        let is_dir = entry.as_ref().is_ok_and(|(_, kind)| *kind == Kind::Dir);
        match visit(entry.map_err(Unreadable::from)) {
            Next::Skip if is_dir => entries.skip_current_dir(),
            Next::Onward | Next::Skip => {}
        }
    }
    entries.next().is_none()
}

fn walk_together(root: &Path, visit: impl Fn(Entry) -> Next + Sync) {
    let mut walker = WalkBuilder::new(root);
    walker.standard_filters(false).follow_links(false);
    walker.build_parallel().run(|| {
        Box::new(|entry| {
            let entry = match entry {
                Ok(entry) if entry.depth() == 0 => return WalkState::Continue,
                Ok(entry) => {
                    let kind = Kind::of(entry.file_type());
                    Ok((entry.into_path(), kind))
                }
                Err(error) => Err(Unreadable::from(error)),
            };
            match visit(entry) {
                Next::Onward => WalkState::Continue,
                Next::Skip => WalkState::Skip,
            }
        })
    });
}

impl From<walkdir::Error> for Unreadable {
    fn from(error: walkdir::Error) -> Self {
        let path = error.path().map(Path::to_owned);
        let cause = error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into());
        Self { path, cause }
    }
}

impl From<ignore::Error> for Unreadable {
    fn from(error: ignore::Error) -> Self {
        let path = path_of(&error).map(Path::to_owned);
        let cause = error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into());
        Self { path, cause }
    }
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            path_of(err)
        }
        ignore::Error::Partial(_)
        | ignore::Error::Loop { .. }
        | ignore::Error::Io(_)
        | ignore::Error::Glob { .. }
        | ignore::Error::UnrecognizedFileType(_)
        | ignore::Error::InvalidDefinition => None,
    }
}
