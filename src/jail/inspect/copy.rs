//! Moves a tree to another filesystem: a bounded copy, and then the removal of what was copied.
//!
//! The tree is an agent's: nothing in it is followed, waited for, or trusted to be small.

use std::ffi::{CString, OsStr};
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, mkfifoat, symlinkat, unlinkat};

use super::reopen::open_for_good;

/// How much is copied at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) depth: u32,
}

impl Bounds {
    pub(super) const USUAL: Self = Self { bytes: 256 << 20, entries: 100_000, depth: 128 };

    fn spend(&mut self, bytes: u64) -> io::Result<()> {
        let too_much = || io::Error::from(io::ErrorKind::FileTooLarge);
        self.entries = self.entries.checked_sub(1).ok_or_else(too_much)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(too_much)?;
        Ok(())
    }

    fn deeper(&mut self) -> io::Result<()> {
        let too_much = || io::Error::from(io::ErrorKind::FileTooLarge);
        self.depth = self.depth.checked_sub(1).ok_or_else(too_much)?;
        Ok(())
    }
}

/// A name in an open directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) directory: &'a OwnedFd,
    pub(super) name: &'a OsStr,
}

/// Copies what is at `from` to `to`, where nothing is, and removes it there. Where the copy fails,
/// it is taken back, and `from` stays; directories in it that were closed may be open then.
pub(super) fn move_by_copy(from: At<'_>, to: At<'_>, bounds: Bounds) -> io::Result<()> {
    let mut left = bounds;
    if let Err(error) = copy(from, to, &mut left) {
        drop(remove(to, bounds.depth));
        return Err(error);
    }
    remove(from, bounds.depth)
}

fn copy(from: At<'_>, to: At<'_>, left: &mut Bounds) -> io::Result<()> {
    let stat = stat(from)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    // Nothing that is kept says any more that whoever runs it is somebody else.
    let mode = stat.st_mode & 0o777;
    if kind == SFlag::S_IFDIR {
        left.spend(0)?;
        left.deeper()?;
        let source = open_directory(from)?;
        mkdirat(to.directory, to.name, Mode::S_IRWXU)?;
        let target = open_directory(to)?;
        for name in names_in(&source)? {
            let name = OsStr::from_bytes(name.as_bytes());
            let (from, to) = (At { directory: &source, name }, At { directory: &target, name });
            copy(from, to, left)?;
        }
        left.depth += 1;
        return File::from(target).set_permissions(Permissions::from_mode(mode));
    }
    if kind == SFlag::S_IFREG {
        left.spend(u64::try_from(stat.st_size).unwrap_or(u64::MAX))?;
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let source = match openat(from.directory, from.name, flags, Mode::empty()) {
            // Its owner may not read it: then nobody is told what it says.
            Err(Errno::EACCES) => None,
            opened => Some(File::from(opened?)),
        };
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mut target = File::from(openat(to.directory, to.name, flags, Mode::S_IRWXU)?);
        if let Some(source) = source {
            // It may have grown since.
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            io::copy(&mut source.take(size), &mut target)?;
        }
        return target.set_permissions(Permissions::from_mode(mode));
    }
    left.spend(0)?;
    if kind == SFlag::S_IFLNK {
        let target = readlinkat(from.directory, from.name)?;
        symlinkat(&*target, to.directory, to.name)?;
    } else if kind == SFlag::S_IFIFO {
        mkfifoat(to.directory, to.name, Mode::from_bits_truncate(mode))?;
    }
    // A socket without its listener is nothing.
    Ok(())
}

/// Removes what is at `place`, and nothing that it links to.
fn remove(place: At<'_>, depth: u32) -> io::Result<()> {
    match unlinkat(place.directory, place.name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    let deeper = depth.checked_sub(1).ok_or(io::ErrorKind::FileTooLarge)?;
    let directory = open_directory(place)?;
    for name in names_in(&directory)? {
        let name = OsStr::from_bytes(name.as_bytes());
        remove(At { directory: &directory, name }, deeper)?;
    }
    unlinkat(place.directory, place.name, UnlinkatFlags::RemoveDir)?;
    Ok(())
}

fn stat(at: At<'_>) -> nix::Result<FileStat> {
    fstatat(at.directory, at.name, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// Opens a directory of ours, also one that was closed to us.
fn open_directory(at: At<'_>) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // Where that does not help, opening it fails.
    drop(open_for_good(at.directory, Path::new(at.name)));
    Ok(openat(at.directory, at.name, flags, Mode::empty())?)
}

fn names_in(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listing = Dir::openat(directory.as_fd(), ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    fn moved(from: &Path, to: &Path, bounds: Bounds) -> io::Result<()> {
        let (source, target) = (open(from), open(to));
        let name = OsStr::new("tree");
        let from = At { directory: &source, name };
        move_by_copy(from, At { directory: &target, name }, bounds)
    }

    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("from/tree/shut")).unwrap();
        fs::create_dir(place.path().join("to")).unwrap();
        place
    }

    #[test]
    fn a_hostile_tree_is_moved_as_it_is() {
        let place = place();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let tree = from.join("tree");
        fs::write(place.path().join("precious"), "keep").unwrap();
        symlink("../../precious", tree.join("link")).unwrap();
        nix::unistd::mkfifo(&tree.join("pipe"), Mode::S_IRWXU).unwrap();
        let odd = OsStr::from_bytes(b"od\xff\nd");
        fs::write(tree.join(odd), "x").unwrap();
        fs::set_permissions(tree.join(odd), Permissions::from_mode(0o4711)).unwrap();
        fs::write(tree.join("shut/inner"), "y").unwrap();
        fs::set_permissions(tree.join("shut"), Permissions::from_mode(0o000)).unwrap();
        moved(&from, &to, Bounds::USUAL).unwrap();

        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(place.path().join("precious")).unwrap(), "keep");
        let tree = to.join("tree");
        assert_eq!(fs::read_link(tree.join("link")).unwrap(), Path::new("../../precious"));
        let metadata = fs::symlink_metadata(tree.join(odd)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o711);
        let shut = fs::symlink_metadata(tree.join("shut")).unwrap().permissions();
        assert_eq!(shut.mode() & 0o7777, 0);
        fs::set_permissions(tree.join("shut"), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::read_to_string(tree.join("shut/inner")).unwrap(), "y");
        assert!(tree.join("pipe").exists());
    }

    #[test]
    fn what_is_too_much_stays_where_it_is_and_leaves_no_half() {
        for bounds in [
            Bounds { bytes: 9, ..Bounds::USUAL },
            Bounds { entries: 2, ..Bounds::USUAL },
            Bounds { depth: 1, ..Bounds::USUAL },
        ] {
            let place = place();
            let (from, to) = (place.path().join("from"), place.path().join("to"));
            fs::write(from.join("tree/shut/ten"), "0123456789").unwrap();
            moved(&from, &to, bounds).unwrap_err();
            assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "{bounds:?}");
            assert_eq!(fs::read(from.join("tree/shut/ten")).unwrap(), b"0123456789");
        }
    }
}
