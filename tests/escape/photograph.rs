//! A tree as it is: everything about it that a run might change.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::raw;

/// Everything at and below a place, by its path relative to it.
pub(crate) type Photograph = BTreeMap<PathBuf, Thing>;

/// One name and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) shape: Shape,
    pub(crate) inode: u64,
    owner: (u32, u32),
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What of a thing two trees can have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    mode: u32,
    /// For all but directories.
    pub(crate) names: u64,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// A file's bytes, or where a link leads.
    pub(crate) content: Vec<u8>,
}

pub(crate) fn photograph(place: &Path) -> anyhow::Result<Photograph> {
    let mut taken = Photograph::new();
    let mut open = vec![place.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        let content = match metadata.mode() & libc::S_IFMT {
            libc::S_IFDIR => {
                for entry in fs::read_dir(&path)? {
                    open.push(entry?.path());
                }
                Vec::new()
            }
            libc::S_IFREG => fs::read(&path)?,
            libc::S_IFLNK => fs::read_link(&path)?.into_os_string().into_encoded_bytes(),
            _ => Vec::new(),
        };
        let shape = Shape {
            mode: metadata.mode(),
            names: if metadata.is_dir() { 0 } else { metadata.nlink() },
            attributes: raw::attributes(&path)?,
            content,
        };
        let thing = Thing {
            shape,
            inode: metadata.ino(),
            owner: (metadata.uid(), metadata.gid()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        taken.insert(path.strip_prefix(place)?.to_owned(), thing);
    }
    Ok(taken)
}

/// The names whose things differ, or are in one of both alone.
pub(crate) fn differences<T: PartialEq>(
    a: &BTreeMap<PathBuf, T>,
    b: &BTreeMap<PathBuf, T>,
) -> Vec<PathBuf> {
    let of_both = a.keys().chain(b.keys().filter(|path| !a.contains_key(*path)));
    of_both.filter(|path| a.get(*path) != b.get(*path)).cloned().collect()
}

/// The shapes alone.
pub(crate) fn shapes(taken: Photograph) -> BTreeMap<PathBuf, Shape> {
    taken.into_iter().map(|(path, thing)| (path, thing.shape)).collect()
}
