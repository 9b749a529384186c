//! Which directories the repositories at launch have as the place of their hooks.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::sights::path_in;
use crate::git;
use crate::policy::lexical;
use crate::surroundings::Surroundings;

/// More than any configuration has; what is longer is not read.
const LARGEST: u64 = 1 << 20;

/// Configuration that git reads before a repository's own (git-config(1)).
#[derive(Debug, Clone, Default)]
pub struct AccountConfig {
    /// What `~/` stands for in a path.
    home: PathBuf,
    /// `core.hooksPath` of the machine and of the user, as written.
    hooks: Vec<PathBuf>,
}

impl AccountConfig {
    /// Reads what the caller's git would.
    #[must_use]
    pub fn read(surroundings: &Surroundings) -> Self {
        let home = surroundings.home.clone();
        let files = [
            surroundings.etc.join("gitconfig"),
            surroundings.config_home.join("git/config"),
            home.join(".gitconfig"),
        ];
        let hooks = files.iter().flat_map(|file| Named::by(file, &home).hooks).collect();
        Self { home, hooks }
    }
}

/// What `core.hooksPath` leads to for each repository in `git_dirs`, by its own configuration or by
/// the account's, as far as that is below `workspace`. Relative to it.
pub(super) fn hooks_paths(
    workspace: &Path,
    git_dirs: &BTreeSet<PathBuf>,
    account: &AccountConfig,
) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for git_dir in git_dirs {
        let own = workspace.join(git_dir);
        let files = ["config", "config.worktree"].map(|name| own.join(name));
        let [config, of_worktree] = files.map(|file| Named::by(&file, &account.home));
        let all = [&account.hooks, &config.hooks, &of_worktree.hooks];
        let paths: Vec<&PathBuf> = all.into_iter().flatten().collect();
        if paths.is_empty() {
            continue;
        }
        // Hooks of a working tree run at its root, and so a relative path counts from there.
        let is_beside = git_dir.file_name() == Some(OsStr::new(".git"));
        let tree = of_worktree.worktree.or(config.worktree).map(|tree| own.join(tree));
        let tree = tree.or_else(|| own.parent().filter(|_| is_beside).map(Path::to_owned));
        let mut roots = vec![tree.unwrap_or_else(|| own.clone())];
        roots.extend(linked_worktrees(&own));
        for path in paths {
            let places = roots.iter().map(|root| lexical(&root.join(path)));
            found.extend(places.filter_map(|place| protectable(&place, workspace, git_dir)));
        }
    }
    found
}

/// The directory of hooks `place`, relative to `workspace`, if it can be protected.
fn protectable(place: &Path, workspace: &Path, git_dir: &Path) -> Option<PathBuf> {
    let below = place.strip_prefix(workspace).ok()?;
    // husky's own scripts lie in `_` and run those beside it.
    let below = match (below.file_name(), below.parent()) {
        (Some(name), Some(above)) if name == "_" => above,
        _ => below,
    };
    // With the repository itself in it, nobody could work there.
    (!git_dir.starts_with(below)).then(|| below.to_owned())
}

/// What a configuration says, with all that it includes: whether a condition holds is not asked.
#[derive(Debug, Default)]
struct Named {
    hooks: Vec<PathBuf>,
    worktree: Option<PathBuf>,
}

impl Named {
    fn by(file: &Path, home: &Path) -> Self {
        let mut named = Self::default();
        let mut left = MOST_FILES;
        named.take(file, home, &mut left);
        named
    }

    /// Takes in `file` and what it includes, of all together no more than `left` files: they may
    /// include each other.
    fn take(&mut self, file: &Path, home: &Path, left: &mut usize) {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        let text = read_small(file).unwrap_or_default();
        for variable in git::parse(&text).unwrap_or_default() {
            let Some(value) = variable.value.filter(|value| !value.is_empty()) else { continue };
            let path = match value.strip_prefix(b"~/") {
                Some(below) => home.join(OsStr::from_bytes(below)),
                None => PathBuf::from(OsStr::from_bytes(&value)),
            };
            match variable.key.to_string().as_str() {
                "core.hookspath" => self.hooks.push(path),
                "core.worktree" => self.worktree = Some(path),
                key if key.starts_with("include") && key.ends_with(".path") => {
                    let beside = file.parent().unwrap_or(Path::new("/"));
                    self.take(&beside.join(path), home, left);
                }
                _ => {}
            }
        }
    }
}

/// More than anybody's configuration is made of.
const MOST_FILES: usize = 100;

/// The roots of the working trees that are linked to `git_dir`.
fn linked_worktrees(git_dir: &Path) -> Vec<PathBuf> {
    let Ok(linked) = git_dir.join("worktrees").read_dir() else { return Vec::new() };
    let root = |entry: io::Result<std::fs::DirEntry>| {
        let text = read_small(&entry.ok()?.path().join("gitdir")).ok()?;
        path_in(&text).parent().map(Path::to_owned)
    };
    linked.filter_map(root).collect()
}

/// Reads a plain file that is not large; a link is followed, as git follows it, a pipe is not
/// waited for.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    read_plain(path, OFlag::empty(), LARGEST)
}

/// Reads a plain file of at most `largest` bytes, opened with `flags` as well; a pipe is not waited
/// for.
pub fn read_plain(path: &Path, flags: OFlag, largest: u64) -> io::Result<Vec<u8>> {
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > largest {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(largest).read_to_end(&mut bytes)?;
    Ok(bytes)
}
