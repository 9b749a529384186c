//! The repository of a linked worktree, which lies outside of the workspace.
//!
//! Git in there needs the history, which all worktrees share, and a directory of the worktree's
//! own. A pointer is a text that anybody may write: it leads somewhere only if what is there is a
//! repository of the same owner that lists the workspace as one of its worktrees (gitrepository-
//! layout(5)), and what is shown of it is a directory and no link.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::home::{Settings, Shown};
use super::hooks::read_small;
use super::real::real_path;
use super::sights::is_git_dir;
use crate::policy::Cover;

/// What a linked worktree needs of its repository. Paths are without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkedRepository {
    /// All of it, to be read: configuration and hooks hold inside as they do outside.
    pub(super) common: PathBuf,
    /// What a commit writes: the history, and the worktree's own directory.
    pub(super) written: Vec<PathBuf>,
    own: PathBuf,
}

/// What the worktrees of a repository share and a commit writes.
const SHARED: [&str; 3] = ["objects", "refs", "logs"];

/// What leads git elsewhere, or can name programs, in a worktree's own directory.
const CLOSED: [(&str, &str); 5] = [
    ("./commondir", "It leads git to another configuration and other hooks."),
    ("./gitdir", "It tells the repository where its worktree is."),
    ("./config.worktree", "It can name programs that git runs on the host."),
    ("./hooks/**", "git runs hooks on the host."),
    ("./info/attributes", "It decides which files pass through which programs."),
];

impl LinkedRepository {
    /// That of `workspace`, a path without links, if it is a linked worktree.
    pub(super) fn of(workspace: &Path) -> Option<Self> {
        let pointer = workspace.join(".git");
        if !fs::symlink_metadata(&pointer).ok()?.is_file() {
            return None;
        }
        let own = leads_to(workspace, read_small(&pointer).ok()?.strip_prefix(b"gitdir:")?)?;
        let common = leads_to(&own, &read_small(&own.join("commondir")).ok()?)?;
        let is_listed = own.parent() == Some(&common.join("worktrees"))
            && leads_to(&own, &read_small(&own.join("gitdir")).ok()?)? == pointer;
        let owner = |path: &Path| fs::metadata(path).map(|metadata| metadata.uid()).ok();
        let is_owners = owner(workspace).is_some()
            && [&own, &common].iter().all(|dir| owner(dir) == owner(workspace));
        if !is_listed || !is_owners || !is_git_dir(&common) || common.starts_with(workspace) {
            return None;
        }
        let is_dir =
            |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let shared = SHARED.map(|name| common.join(name)).into_iter().filter(is_dir);
        let written = shared.chain([own.clone()]).collect();
        Some(Self { common, written, own })
    }

    /// The names in the worktree's own directory that the agent may not change.
    pub(super) fn settings(&self) -> Settings {
        let dir = Shown { at: self.own.clone(), from: self.own.clone() };
        Settings { dir, protect: Cover::built_in("git", &CLOSED) }
    }
}

/// Where the path `text`, a line of one of git's files in `dir`, leads.
fn leads_to(dir: &Path, text: &[u8]) -> Option<PathBuf> {
    real_path(&dir.join(OsStr::from_bytes(text.trim_ascii()))).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A repository with a linked worktree, as git lays them out.
    fn laid_out() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = real_path(dir.path()).unwrap();
        let (common, tree) = (root.join("repo/.git"), root.join("tree"));
        let own = common.join("worktrees/tree");
        for path in [&own, &tree, &common.join("objects"), &common.join("refs")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(common.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(own.join("gitdir"), format!("{}/.git\n", tree.display())).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        (dir, common, tree)
    }

    #[test]
    fn a_linked_worktree_has_the_history_and_a_directory_of_its_own() {
        let (_dir, common, tree) = laid_out();
        let found = LinkedRepository::of(&tree).unwrap();
        let written = ["objects", "refs", "worktrees/tree"].map(|name| common.join(name));
        assert_eq!((found.common, found.written), (common.clone(), written.to_vec()));
        // A link in the place of a directory would lead anywhere.
        fs::remove_dir(common.join("refs")).unwrap();
        symlink("/etc", common.join("refs")).unwrap();
        assert_eq!(
            LinkedRepository::of(&tree).unwrap().written,
            [&written[0], &written[2]].map(Clone::clone)
        );
    }

    #[test]
    fn what_the_agent_may_not_change_of_it_is_all_there() {
        let (_dir, _, tree) = laid_out();
        let Settings { protect, .. } = LinkedRepository::of(&tree).unwrap().settings();
        assert_eq!(protect.lists().iter().map(Vec::len).sum::<usize>(), CLOSED.len());
        for name in
            ["commondir", "gitdir", "config.worktree", "hooks/post-commit", "info/attributes"]
        {
            assert!(protect.covers(Path::new(name)).is_some(), "{name}");
        }
        assert!(protect.covers(Path::new("HEAD")).is_none());
    }

    #[test]
    fn a_pointer_that_is_not_answered_leads_nowhere() {
        let not = |change: fn(&Path, &Path)| {
            let (_dir, common, tree) = laid_out();
            change(&common, &tree);
            assert_eq!(LinkedRepository::of(&tree), None);
        };
        not(|_, tree| fs::write(tree.join(".git"), "gitdir: /etc\n").unwrap());
        not(|_, tree| fs::write(tree.join(".git"), "anything").unwrap());
        not(|common, _| {
            fs::write(common.join("worktrees/tree/gitdir"), "/elsewhere/.git").unwrap();
        });
        not(|common, _| fs::write(common.join("worktrees/tree/commondir"), "/etc").unwrap());
        not(|common, _| fs::remove_file(common.join("worktrees/tree/commondir")).unwrap());
        not(|_, tree| {
            fs::rename(tree.join(".git"), tree.join("moved")).unwrap();
            symlink("moved", tree.join(".git")).unwrap();
        });
        not(|common, tree| {
            // Another worktree's pointer, copied.
            fs::write(
                common.join("worktrees/tree/gitdir"),
                tree.parent().unwrap().join("other/.git").as_os_str().as_bytes(),
            )
            .unwrap();
        });
    }
}
