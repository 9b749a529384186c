//! The new root while it is being made: places in it, reached without following a symlink.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat, mode_t};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use crate::lookup::beneath;

/// The root of a tree that is being made.
#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// What `file` is, with everything that is no directory counted as a file.
pub(crate) fn kind_of(file: BorrowedFd<'_>) -> io::Result<Kind> {
    const S_IFMT: mode_t = libc::S_IFMT;
    let is_directory = fstat(file)?.st_mode & S_IFMT == libc::S_IFDIR;
    Ok(if is_directory { Kind::Directory } else { Kind::File })
}

impl Root {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self(root)
    }

    /// What lies at `path`, which must exist.
    ///
    /// No component is followed if it is a symlink: what the agent planted in an earlier run leads
    /// a mask nowhere else.
    pub(crate) fn existing(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open(path, OFlag::O_NOFOLLOW)
    }

    /// The directory at `path`, made with what leads to it where it is missing.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.open(path, OFlag::O_DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make_directory(path),
            found => found,
        }
    }

    fn open(&self, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
        beneath(&self.0, path.strip_prefix("/").unwrap_or(path), OFlag::O_PATH | flags)
    }

    fn make_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut at = self.0.try_clone()?;
        for name in names(path) {
            let name = name?;
            at = match open_directory(at.as_fd(), name) {
                Err(Errno::ENOENT) => {
                    match mkdirat(&at, name, Mode::from_bits_truncate(0o755)) {
                        Ok(()) | Err(Errno::EEXIST) => {}
                        Err(other) => return Err(other.into()),
                    }
                    open_directory(at.as_fd(), name)?
                }
                found => found?,
            };
        }
        Ok(at)
    }

    /// The file at `path`, made empty where it is missing.
    pub(crate) fn file(&self, path: &Path) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent_of(path)?;
        let flags = OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | CLOEXEC;
        match openat(&parent, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | CLOEXEC, Mode::empty()) {
            Err(Errno::ENOENT) => Ok(openat(&parent, name, flags, READ_ALL)?),
            found => Ok(found?),
        }
    }

    /// A place for something of `kind`.
    pub(crate) fn place(&self, path: &Path, kind: Kind) -> io::Result<OwnedFd> {
        match kind {
            Kind::Directory => self.directory(path),
            Kind::File => self.file(path),
        }
    }

    /// Writes a new file, readable by all and writable by nobody: the lines of `first`, and then
    /// `own`.
    pub(crate) fn write(&self, path: &Path, first: Option<OwnedFd>, own: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_WRONLY | CLOEXEC;
        let mut file = File::from(openat(&parent, name, flags, READ_ALL)?);
        if let Some(first) = first {
            copy_lines(first.into(), &mut file)?;
        }
        file.write_all(own)?;
        // The umask is the caller's; what the jail shows is not.
        fchmod(&file, READ_ALL)?;
        Ok(())
    }

    /// Makes a symlink; one that is there already, in a private home, is good if it leads there.
    pub(crate) fn symlink(&self, path: &Path, to: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        match symlinkat(to, &parent, name) {
            Err(Errno::EEXIST) if readlinkat(&parent, name)? == to => Ok(()),
            made => Ok(made?),
        }
    }

    /// Removes the empty directory at `path`, if it is there.
    pub(crate) fn forget(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        match unlinkat(&parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    fn parent_of<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.directory(parent)?, name))
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Copies all lines of `from`; the last one is ended where it is not.
fn copy_lines(mut from: File, to: &mut File) -> io::Result<()> {
    let copied = io::copy(&mut from, to)?;
    let mut last = [b'\n'];
    if copied > 0 {
        from.read_exact_at(&mut last, copied - 1)?;
    }
    if last == [b'\n'] { Ok(()) } else { to.write_all(b"\n") }
}

const CLOEXEC: OFlag = OFlag::O_CLOEXEC;
const READ_ALL: Mode = Mode::from_bits_truncate(0o444);

fn open_directory(at: BorrowedFd<'_>, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// The names on the way to an absolute path; `..` is refused.
fn names(path: &Path) -> impl Iterator<Item = io::Result<&OsStr>> {
    path.components().filter_map(|component| match component {
        Component::RootDir | Component::CurDir => None,
        Component::Normal(name) => Some(Ok(name)),
        Component::ParentDir | Component::Prefix(_) => {
            Some(Err(io::ErrorKind::InvalidInput.into()))
        }
    })
}
