//! What a walk over a workspace sees beside what the policy closes: repositories, and links that
//! lead out.
//!
//! A git directory is known by its name, or by what git asks of one: a `HEAD` beside `objects`, or
//! beside a `commondir` that leads to them. Bare ones, submodules' and worktrees' are found alike.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::home::SYSTEM_TREES;
use super::walk::Kind;
use crate::policy::lexical;

/// Paths relative to the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sights {
    /// The directories in which git keeps repositories.
    pub git_dirs: BTreeSet<PathBuf>,
    /// `.git` where it is a file or a link that leads to such a directory.
    pub pointers: BTreeSet<PathBuf>,
    /// Links that lead out of the workspace, and where they say to lead.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Where a `HEAD` was seen.
    heads: BTreeSet<PathBuf>,
}

impl Sights {
    /// Takes in `path`, something in `workspace`.
    pub(super) fn see(&mut self, workspace: &Path, path: &Path, kind: Kind) {
        let is_dir = kind == Kind::Dir;
        let name = path.file_name();
        if name == Some(OsStr::new(".git")) {
            let found = if is_dir { &mut self.git_dirs } else { &mut self.pointers };
            found.insert(path.to_owned());
        } else if name == Some(OsStr::new("HEAD")) && !is_dir {
            self.heads.insert(path.parent().unwrap_or(path).to_owned());
        }
        if kind == Kind::Link
            && let Ok(target) = fs::read_link(workspace.join(path))
            && leads_out(workspace, path, &target)
        {
            self.links.insert(path.to_owned(), target);
        }
    }

    /// Whether [`Self::see`] would make anything of such an entry.
    pub(super) fn concerns(path: &Path, kind: Kind) -> bool {
        let name = path.file_name();
        kind == Kind::Link || name == Some(OsStr::new(".git")) || name == Some(OsStr::new("HEAD"))
    }

    /// Judges what can only be judged when everything was seen.
    pub fn settle(&mut self, workspace: &Path) {
        let heads = std::mem::take(&mut self.heads).into_iter();
        self.git_dirs.extend(heads.filter(|dir| is_git_dir(&workspace.join(dir))));
    }

    pub(super) fn add(&mut self, other: Self) {
        self.git_dirs.extend(other.git_dirs);
        self.pointers.extend(other.pointers);
        self.links.extend(other.links);
        self.heads.extend(other.heads);
    }
}

/// Whether git would take the directory `dir` for one of its own.
#[must_use]
pub fn is_git_dir(dir: &Path) -> bool {
    let has = |name: &str| dir.join(name).exists();
    let is_called = dir.file_name() == Some(OsStr::new(".git")) && dir.is_dir();
    // A HEAD may be a link to a branch that is not there yet.
    let has_head = fs::symlink_metadata(dir.join("HEAD")).is_ok();
    is_called || has_head && (has("objects") || has("commondir"))
}

/// The path that one of git's files holds, which is all of its text: `commondir`, `gitdir`.
#[must_use]
pub fn path_in(text: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(text.trim_ascii()))
}

/// Where a `.git` that is a file says that its repository is.
#[must_use]
pub fn pointed_to(text: &[u8]) -> Option<&Path> {
    text.strip_prefix(b"gitdir:").map(path_in)
}

/// Whether the link at `path` in `workspace` leads out of it, to anything but the machine's own
/// programs: those are readable to everybody and nobody's to write.
fn leads_out(workspace: &Path, path: &Path, target: &Path) -> bool {
    let from = workspace.join(path);
    let named = lexical(&from.parent().unwrap_or(workspace).join(target));
    if !named.starts_with(workspace) {
        return !SYSTEM_TREES.iter().any(|tree| named.starts_with(tree));
    }
    // `link/..` is not where the link stands but the parent of where it leads.
    let mut parts = target.components().skip_while(|part| *part == Component::ParentDir);
    parts.any(|part| part == Component::ParentDir)
        && super::real_path(&from).is_ok_and(|real| !real.starts_with(workspace))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_leave_are_told_from_those_that_stay() {
        let root = tempfile::tempdir().unwrap();
        let work = super::super::real_path(root.path()).unwrap().join("w");
        fs::create_dir_all(work.join("a/b")).unwrap();
        symlink(".", work.join("here")).unwrap();
        let out = |target: &str| {
            let link = work.join("a/link");
            drop(fs::remove_file(&link));
            symlink(target, &link).unwrap();
            leads_out(&work, Path::new("a/link"), Path::new(target))
        };
        let inside = work.join("a").display().to_string();
        for stays in ["b", "../a", "..", "missing", "/usr/bin/env", &inside, "b/../../a"] {
            assert!(!out(stays), "{stays}");
        }
        for leaves in ["/etc", "../..", "../../w2", "/usr/../etc", "/", "../here/../../x"] {
            assert!(out(leaves), "{leaves}");
        }
        // By its words it stays, and yet it is the directory above the workspace.
        assert!(out("../here/.."));
    }
}
