//! What stands at protected names and should not: the exit's view against the launch's.
//!
//! Who changed what is told by what the guard and the masks make impossible. In a guarded directory
//! nobody inside can make a closed name, so that what is new there is the host's and stays; so is a
//! hidden name anywhere, which an agent gains nothing by making. Something that was there at launch could
//! not be changed, removed or renamed from inside: where it differs now, that is the host's doing
//! and stays, and a protected file that differs is told. Three things are the agent's, or cannot be
//! told from it: a name that was not there; a name in a directory that was moved away and made
//! again; a protected link, which no mask covers.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::identity::{Identity, Raw};
use super::launch::{Closure, Known, Launch};
use super::moves::Moves;
use crate::policy::FileRules;
use crate::workspace::{Kind, Match, Matches};

/// Something to be moved away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planted {
    pub(super) path: PathBuf,
    /// The policy's words that close the name.
    pub(super) rule: String,
}

/// What came of the comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) planted: Vec<Planted>,
    /// Protected files that say something else than at launch.
    pub(super) changed: Vec<PathBuf>,
}

enum Verdict {
    Stays,
    Changed,
    Planted,
}

/// Compares `matches`, found now, with `launch`.
pub(super) fn compare(
    launch: &Launch,
    rules: &FileRules,
    moves: &Moves,
    workspace: &Path,
    matches: &Matches,
) -> Compared {
    let mut compared = Compared::default();
    for hit in &matches.protected {
        let is_in = |planted: &Planted| hit.path.starts_with(&planted.path);
        if compared.planted.last().is_some_and(is_in) {
            continue;
        }
        match judge(launch, moves, workspace, hit) {
            Verdict::Stays => {}
            Verdict::Changed => compared.changed.push(hit.path.clone()),
            Verdict::Planted => {
                let entry = rules.protect.covers_unit(&hit.path);
                let rule = entry.map_or_else(String::new, |entry| entry.value.to_string());
                compared.planted.push(Planted { path: hit.path.clone(), rule });
            }
        }
    }
    compared
}

fn judge(launch: &Launch, moves: &Moves, workspace: &Path, hit: &Match) -> Verdict {
    let path = workspace.join(&hit.path);
    let Ok(metadata) = fs::symlink_metadata(&path) else { return Verdict::Stays };
    let now = Identity::of(&metadata);
    let Some(known) = launch.names.get(&Raw::from(hit.path.as_path())) else {
        let is_one = |known: &Known| known.identity.is_same(&now);
        // In a directory that was covered whole nothing can be made from inside.
        let is_covered = || covered(launch, workspace, &hit.path);
        let is_hosts = || is_guarded(launch, &hit.path) || is_covered();
        let was_there = launch.names.values().any(is_one);
        return if was_there || is_hosts() { Verdict::Stays } else { Verdict::Planted };
    };
    if !known.identity.is_same(&now) {
        let has_no_mask = known.kind == Kind::Link && known.closure == Closure::Protected;
        if has_no_mask || moves.is_rebuilt(&hit.path) {
            return Verdict::Planted;
        }
    }
    // What git itself writes there every day passes the guard, and the rest does not.
    let is_gits = hit.path.file_name() == Some(OsStr::new("config"))
        && hit.path.parent().is_some_and(|dir| launch.git_dirs.contains_key(&Raw::from(dir)));
    let is_told = known.closure == Closure::Protected && hit.kind == Kind::File && !is_gits;
    if is_told && !known.content.is_same(&path, &metadata) {
        return Verdict::Changed;
    }
    Verdict::Stays
}

/// Whether `path` is a name in a directory that was guarded from the launch on.
fn is_guarded(launch: &Launch, path: &Path) -> bool {
    path.parent().is_some_and(|dir| launch.guarded.contains(&Raw::from(dir)))
}

/// Whether `path` is in a directory that was covered as a whole and is the same.
fn covered(launch: &Launch, workspace: &Path, path: &Path) -> bool {
    path.ancestors().skip(1).any(|above| {
        let known = launch.names.get(&Raw::from(above)).filter(|known| known.kind == Kind::Dir);
        let now = fs::symlink_metadata(workspace.join(above)).map(|found| Identity::of(&found));
        known.zip(now.ok()).is_some_and(|(known, now)| known.identity.is_same(&now))
    })
}
