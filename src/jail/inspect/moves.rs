//! Directories that were moved away, to make their names anew.
//!
//! What a mask covers cannot be removed or renamed from inside, but a directory above it can be
//! renamed. It is then still somewhere in the workspace: that tells this from the host's own work,
//! which replaces a directory and keeps no old one.

use std::fs;
use std::path::{Path, PathBuf};

use super::identity::Identity;
use super::launch::Launch;
use crate::workspace::directories;

/// Each directory that was moved, with its way back, outermost only.
#[derive(Debug, Default)]
pub(super) struct Moves(pub(super) Vec<(PathBuf, PathBuf)>);

impl Moves {
    /// Looks where the directories of `launch` are. Only when one is not where it was, the whole
    /// workspace is looked through.
    pub(super) fn find(launch: &Launch, workspace: &Path) -> Self {
        let identity = |path: &Path| {
            fs::symlink_metadata(workspace.join(path)).ok().map(|found| Identity::of(&found))
        };
        let mut away: Vec<(&Path, &Identity)> = Vec::new();
        for (path, known) in launch.above.iter().chain(&launch.git_dirs) {
            let is_below = away.iter().any(|(above, _)| path.0.starts_with(above));
            if !is_below && !identity(&path.0).is_some_and(|now| now.is_same(known)) {
                away.push((&path.0, known));
            }
        }
        if away.is_empty() {
            return Self::default();
        }
        let mut moves = Vec::new();
        for now in directories(workspace) {
            let Some(found) = identity(&now) else { continue };
            let from = away.iter().find(|(_, known)| found.is_same(known));
            moves.extend(from.map(|(from, _)| ((*from).to_owned(), now)));
        }
        moves.sort();
        Self(moves)
    }

    /// Whether the directory that `path` was in at launch is now somewhere else.
    pub(super) fn is_rebuilt(&self, path: &Path) -> bool {
        self.0.iter().any(|(from, _)| path != from && path.starts_with(from))
    }
}
