//! Which directories are guarded, and what the policy says of names in them.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kvro_sandbox::{Guarded, Names, Shown, ShownAs, Standing, Stretch, View};

use crate::git::{self, Effect};
use crate::policy::{FileRules, Leads, Sieve};
use crate::workspace::{
    FEW, Match, Matches, Settings, Survey, everything_below, is_git_dir, look, read_small,
};

/// A tree to be guarded.
#[derive(Debug, Clone)]
pub struct Guarding {
    pub guarded: Guarded,
    pub names: ClosedNames,
}

impl Guarding {
    /// The workspace, as it was surveyed from `scanned` on.
    pub fn workspace(
        workspace: &Path,
        survey: &Survey,
        scanned: i64,
        stretch: Stretch,
    ) -> Result<Self, globset::Error> {
        let Survey { files, matches, .. } = survey;
        let names = ClosedNames::new(workspace, files)?;
        let suspects = files.globs().map(|glob| glob.glob().to_owned()).collect();
        let views = views(matches, &names, stretch);
        let (root, folds_case) = (workspace.to_owned(), files.folds_case());
        let guarded = Guarded { root, views, suspects, folds_case, scanned };
        Ok(Self { guarded, names })
    }

    /// A kept directory, of which only what is directly at closed names is covered: its patterns
    /// spell out all that leads there.
    pub fn settings(settings: &Settings) -> Result<Self, globset::Error> {
        let Settings { dir, protect } = settings;
        let files = FileRules { protect: protect.clone(), ..FileRules::default() };
        let names = ClosedNames::new(&dir.from, &files)?;
        let views = views(&Matches::default(), &names, Stretch::ReadWrite);
        let (root, suspects, folds_case) = (dir.at.clone(), Vec::new(), files.folds_case());
        // Nothing is scanned: all that may be closed is looked at by its name.
        let scanned = 0;
        Ok(Self { guarded: Guarded { root, views, suspects, folds_case, scanned }, names })
    }
}

/// The policy over names in a guarded tree.
#[derive(Debug, Clone)]
pub struct ClosedNames(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The tree on the host.
    root: PathBuf,
    files: FileRules,
    /// All patterns of `files`.
    sieve: Sieve,
    /// Directories that are known to match nothing, nor anything on the way to them: of a path
    /// that is asked about, the way was most often asked about before.
    clear: Mutex<HashSet<PathBuf>>,
    /// Directories that lead to names of `files`.
    leads: Leads,
}

/// What git writes its configuration to, and under which name first.
const CONFIG: &str = "config";
const CONFIG_LOCK: &str = "config.lock";

impl ClosedNames {
    /// `files` are the rules as they hold in the tree `root`, its repositories taken in.
    pub fn new(root: &Path, files: &FileRules) -> Result<Self, globset::Error> {
        Ok(Self(Arc::new(Inner {
            root: root.to_owned(),
            files: files.clone(),
            sieve: files.sieve()?,
            clear: Mutex::default(),
            leads: files.leads(),
        })))
    }
}

/// So many directories are remembered.
const MOST_CLEAR: usize = 4096;

impl Inner {
    /// Whether a pattern may match `path` or anything on the way to it.
    fn may_match(&self, path: &Path) -> bool {
        self.sieve.may_match(path) || path.parent().is_some_and(|dir| !self.is_clear(dir))
    }

    fn is_clear(&self, dir: &Path) -> bool {
        let known = || self.clear.lock().unwrap_or_else(PoisonError::into_inner);
        if dir.as_os_str().is_empty() || known().contains(dir) {
            return true;
        }
        let is_clear = !self.may_match(dir);
        if is_clear {
            let mut known = known();
            if known.len() >= MOST_CLEAR {
                known.clear();
            }
            known.insert(dir.to_owned());
        }
        is_clear
    }
}

impl Names for ClosedNames {
    fn standing(&self, path: &Path) -> Standing {
        let inner = &*self.0;
        if inner.may_match(path) {
            if inner.files.hide.covers(path).is_some() {
                return Standing::Hidden;
            }
            if inner.files.protect.covers(path).is_some() {
                return Standing::Protected;
            }
        }
        if inner.leads.contains(path) { Standing::Leads } else { Standing::Open }
    }

    /// A repository's configuration may change where git itself writes it every day.
    fn replacement(&self, from: &Path, to: &Path) -> Option<Vec<u8>> {
        let inner = &*self.0;
        let is_lock = from.parent() == to.parent() && from.file_name()? == CONFIG_LOCK;
        if !is_lock || to.file_name()? != CONFIG || self.standing(to) != Standing::Protected {
            return None;
        }
        let is_repository = to.parent().is_some_and(|dir| is_git_dir(&inner.root.join(dir)));
        if !is_repository {
            return None;
        }
        let read = |path: &Path| {
            let path = inner.root.join(path);
            let is_file = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
            if is_file { read_small(&path).ok() } else { None }
        };
        let after = read(from)?;
        let changes = git::changes(&read(to)?, &after).ok()?;
        changes.iter().all(|change| change.effect == Effect::Harmless).then_some(after)
    }

    fn brings_closed(&self, from: &Path, to: &Path) -> bool {
        self.0.leads.reach_below(to)
            && everything_below(&self.0.root.join(from))
                .iter()
                .any(|below| self.standing(&to.join(below)).is_closed())
    }

    fn views(&self, dir: &Path) -> Vec<PathBuf> {
        let inner = &*self.0;
        let root = inner.root.join(dir);
        let seen = look(FEW, &root, &inner.root, &inner.files, |_| {}).unwrap_or_default();
        let mut views: BTreeSet<PathBuf> = BTreeSet::new();
        for Match { path, .. } in seen.hidden.into_iter().chain(seen.protected) {
            let above = path.ancestors().skip(1).take_while(|above| above.starts_with(dir));
            views.extend(above.map(Path::to_owned));
        }
        views.into_iter().collect()
    }
}

/// The guarded directories of a tree at launch: those that hold what `matches` found, those that
/// lead to names which may yet come, and all on the way to one.
fn views(matches: &Matches, names: &ClosedNames, stretch: Stretch) -> Vec<View> {
    let (root, leads) = (names.0.root.as_path(), &names.0.leads);
    let mut dirs = BTreeSet::from([PathBuf::new()]);
    let found = matches.hidden.iter().chain(&matches.protected);
    for path in found.map(|found| &found.path) {
        dirs.extend(path.ancestors().skip(1).map(Path::to_owned));
    }
    let is_dir = |dir: &PathBuf| {
        fs::symlink_metadata(root.join(dir)).is_ok_and(|metadata| metadata.is_dir())
    };
    dirs.extend(leads.present(root));
    // What is closed as a whole has no names of its own to guard, unless more is closed in it.
    dirs.retain(|dir| names.standing(dir) != Standing::Hidden && is_dir(dir));
    let covered: BTreeSet<&Path> =
        matches.hidden.iter().map(|found| found.path.as_path()).collect();
    let views = dirs.iter().map(|dir| {
        let is_protected = names.standing(dir) == Standing::Protected;
        let stretch = if is_protected { Stretch::ReadOnly } else { stretch };
        View { path: dir.clone(), stretch, names: shown(dir, &dirs, &covered, names) }
    });
    views.collect()
}

/// What a guarded directory shows at first. What cannot be listed shows nothing.
fn shown(
    dir: &Path,
    dirs: &BTreeSet<PathBuf>,
    covered: &BTreeSet<&Path>,
    names: &ClosedNames,
) -> Vec<Shown> {
    let Ok(entries) = fs::read_dir(names.0.root.join(dir)) else { return Vec::new() };
    let entries = entries.flatten().map(|entry| PathBuf::from(entry.file_name()));
    let shown = entries.filter_map(|name| {
        let path = dir.join(&name);
        if dirs.contains(&path) {
            return None;
        }
        let shown = match names.standing(&path) {
            _ if covered.contains(path.as_path()) => ShownAs::Covered,
            // It came after the scan.
            Standing::Hidden => return None,
            Standing::Protected => ShownAs::Protected,
            Standing::Open | Standing::Leads => ShownAs::Open,
        };
        Some(Shown { name, shown })
    });
    shown.collect()
}

/// Whether `path` is a guarded directory, or a name in one.
pub(super) fn shows(guarded: &Guarded, path: &Path) -> bool {
    let is_view = |path: &Path| guarded.views.iter().any(|view| view.path == path);
    path.strip_prefix(&guarded.root)
        .is_ok_and(|path| is_view(path) || path.parent().is_some_and(is_view))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Cover;

    #[test]
    fn what_is_remembered_of_a_way_changes_no_answer() {
        let cover = |words: &[&str]| {
            let entries =
                words.iter().map(|word| crate::policy::Entry::typed(word.parse().unwrap()));
            Cover::of(vec![entries.collect()])
        };
        let files = FileRules {
            hide: cover(&["**/.env", "secrets/**"]),
            protect: cover(&["infra/**", "mods/*/hook"]),
            ..FileRules::default()
        };
        let names = ClosedNames::new(Path::new("/nowhere"), &files).unwrap();
        // Twice: the second time from memory.
        for _ in 0..2 {
            for (path, standing) in [
                ("a/b/c", Standing::Open),
                ("a/b/.env", Standing::Hidden),
                ("a/b/.env/c/d", Standing::Hidden),
                ("a/b/d", Standing::Open),
                ("secrets/x/y", Standing::Hidden),
                ("infra", Standing::Protected),
                ("infra/x/y/z", Standing::Protected),
                ("mods", Standing::Leads),
                ("mods/one", Standing::Leads),
                ("mods/one/hook", Standing::Protected),
                ("mods/one/hook/below", Standing::Protected),
                ("mods/one/two/hook", Standing::Open),
            ] {
                assert_eq!(names.standing(Path::new(path)), standing, "{path}");
            }
        }
        for number in 0..MOST_CLEAR + 2 {
            assert_eq!(
                names.standing(&Path::new("d").join(number.to_string()).join("x")),
                Standing::Open
            );
        }
        assert_eq!(names.standing(Path::new("d/0/.env")), Standing::Hidden);
    }
}
