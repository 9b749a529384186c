//! Which directories the repositories at launch name as the place of their hooks.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::git;
use crate::policy::lexical;

/// More than any configuration has; what is longer is not read.
const LARGEST: u64 = 1 << 20;

/// What `core.hooksPath` of each repository in `git_dirs` leads to, as far as that is below
/// `workspace`. Relative to it.
pub(super) fn hooks_paths(workspace: &Path, git_dirs: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for git_dir in git_dirs {
        let (paths, worktree) = named_by(&workspace.join(git_dir));
        if paths.is_empty() {
            continue;
        }
        let own = workspace.join(git_dir);
        // Hooks of a working tree run at its root, and so a relative path counts from there.
        let is_beside = git_dir.file_name() == Some(OsStr::new(".git"));
        let tree = worktree.map(|tree| own.join(tree));
        let tree = tree.or_else(|| own.parent().filter(|_| is_beside).map(Path::to_owned));
        let mut roots = vec![tree.unwrap_or_else(|| own.clone())];
        roots.extend(linked_worktrees(&own));
        for (root, path) in roots.iter().flat_map(|root| paths.iter().map(move |p| (root, p))) {
            let place = lexical(&root.join(path));
            let Ok(below) = place.strip_prefix(workspace) else { continue };
            // husky's own scripts lie in `_` and run those beside it.
            let below = match (below.file_name(), below.parent()) {
                (Some(name), Some(above)) if name == "_" => above,
                _ => below,
            };
            // With the repository itself in it, nobody could work there.
            if !git_dir.starts_with(below) {
                found.insert(below.to_owned());
            }
        }
    }
    found
}

/// Every `core.hooksPath` in the configuration of `git_dir`, and its `core.worktree`.
fn named_by(git_dir: &Path) -> (Vec<PathBuf>, Option<PathBuf>) {
    let (mut paths, mut worktree) = (Vec::new(), None);
    for name in ["config", "config.worktree"] {
        let text = read_small(&git_dir.join(name)).unwrap_or_default();
        for variable in git::parse(&text).unwrap_or_default() {
            let path = variable.value.filter(|value| !value.is_empty());
            let path = path.map(|value| PathBuf::from(OsStr::from_bytes(&value)));
            match (variable.key.to_string().as_str(), path) {
                ("core.hookspath", Some(path)) => paths.push(path),
                ("core.worktree", Some(path)) => worktree = Some(path),
                _ => {}
            }
        }
    }
    (paths, worktree)
}

/// The roots of the working trees that are linked to `git_dir`.
fn linked_worktrees(git_dir: &Path) -> Vec<PathBuf> {
    let Ok(linked) = git_dir.join("worktrees").read_dir() else { return Vec::new() };
    let root = |entry: io::Result<std::fs::DirEntry>| {
        let text = read_small(&entry.ok()?.path().join("gitdir")).ok()?;
        let pointer = Path::new(OsStr::from_bytes(text.trim_ascii()));
        pointer.parent().map(Path::to_owned)
    };
    linked.filter_map(root).collect()
}

/// Reads a plain file that is not large; a link is followed, as git follows it, a pipe is not
/// waited for.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY).bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}
