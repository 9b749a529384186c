//! The repository of a linked worktree, which lies outside of the workspace.
//!
//! Git in there needs the directory that all worktrees share. A pointer is a text that anybody may
//! write: it leads somewhere only if what is there is a repository of the same owner that lists the
//! workspace as one of its worktrees (gitrepository-layout(5)).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::home::{Settings, Shown};
use super::hooks::read_small;
use super::real::real_path;
use super::sights::{is_git_dir, path_in, pointed_to};
use crate::policy::Cover;

/// What is not a commit's to change: the main worktree, what leads git elsewhere, and what can name
/// programs. Of `config` what git writes every day passes all the same, by its content.
const CLOSED: [(&str, &str); 13] = [
    ("./HEAD", "It is the main worktree's."),
    ("./index", "It is the main worktree's."),
    ("./config", "It can name programs that git runs on the host."),
    ("./config.worktree", "It can name programs that git runs on the host."),
    ("./commondir", "It leads git to another configuration and other hooks."),
    ("./hooks/**", "git runs hooks on the host."),
    ("./info/attributes", "It decides which files pass through which programs."),
    ("./modules/**", "They are the submodules' repositories."),
    ("./worktrees/*/commondir", "It leads git to another configuration and other hooks."),
    ("./worktrees/*/gitdir", "It tells the repository where its worktree is."),
    ("./worktrees/*/config.worktree", "It can name programs that git runs on the host."),
    ("./worktrees/*/hooks/**", "git runs hooks on the host."),
    ("./worktrees/*/info/attributes", "It decides which files pass through which programs."),
];

/// The directory that the worktrees of the repository of `workspace` share, without links, if
/// `workspace`, a path without links, is a linked worktree.
pub(super) fn linked_repository(workspace: &Path) -> Option<PathBuf> {
    let pointer = workspace.join(".git");
    if !fs::symlink_metadata(&pointer).ok()?.is_file() {
        return None;
    }
    let own = real_path(&workspace.join(pointed_to(&read_small(&pointer).ok()?)?)).ok()?;
    let named_in = |file: &str| -> io::Result<PathBuf> {
        real_path(&own.join(path_in(&read_small(&own.join(file))?)))
    };
    let common = named_in("commondir").ok()?;
    let is_listed =
        own.parent() == Some(&common.join("worktrees")) && named_in("gitdir").ok()? == pointer;
    let owner = |path: &Path| fs::metadata(path).map(|metadata| metadata.uid()).ok();
    let ours = owner(workspace)?;
    let is_owners = [&own, &common].iter().all(|dir| owner(dir) == Some(ours));
    let is_one = is_listed && is_owners && is_git_dir(&common) && !common.starts_with(workspace);
    is_one.then_some(common)
}

/// The names in the shared directory `common` that the agent may not change.
pub(super) fn closed_in(common: &Path) -> Settings {
    let dir = Shown { at: common.to_owned(), from: common.to_owned() };
    Settings { dir, protect: Cover::of_git(&CLOSED) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
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
    fn a_linked_worktree_has_a_repository_in_which_names_are_closed() {
        let (_dir, common, tree) = laid_out();
        assert_eq!(linked_repository(&tree), Some(common.clone()));
        let Settings { protect, .. } = closed_in(&common);
        assert_eq!(protect.lists().iter().map(Vec::len).sum::<usize>(), CLOSED.len());
        for name in ["config", "hooks/post-commit", "worktrees/tree/commondir", "info/attributes"] {
            assert!(protect.covers(Path::new(name)).is_some(), "{name}");
        }
        for name in ["packed-refs", "refs/heads/hooks", "worktrees/tree/HEAD", "objects/info"] {
            assert!(protect.covers(Path::new(name)).is_none(), "{name}");
        }
    }

    #[test]
    fn a_pointer_that_is_not_answered_leads_nowhere() {
        let not = |change: fn(&Path, &Path)| {
            let (_dir, common, tree) = laid_out();
            change(&common, &tree);
            assert_eq!(linked_repository(&tree), None);
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
