//! The view: what a guarded directory shows.
//!
//! The guarded tree is covered by a small filesystem in memory that the agent cannot write. In it
//! each name that may be seen is a place, and the real file or directory is mounted on the place;
//! symlinks are copied. Nothing that the host does to the real names can lift a mount off a place
//! of ours, and what is not mounted is not there.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, readlinkat, renameat2};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use crate::lookup::{beneath, is_gone};
use crate::mounts::attributes;
use crate::plan::Stretch;
use crate::sys::{self, MountAttributes};

/// What is put over a name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cover<'t> {
    /// The same, read-only.
    ReadOnly,
    /// A file with this text, or an empty directory over a directory.
    Decoy(&'t str),
}

/// A new symlink or decoy waits under this name until it takes its place. In the view alone, never
/// on the host.
const WAITING: &str = ".kvro-new";

/// The view and what lies under it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The tree's path in the jail.
    root: PathBuf,
    /// The real tree, below the view.
    real: OwnedFd,
    /// The view as the agent sees it.
    view: OwnedFd,
    /// The view's filesystem, writable.
    places: OwnedFd,
}

impl Tree {
    pub(crate) fn new(root: PathBuf, real: OwnedFd, view: OwnedFd, places: OwnedFd) -> Self {
        Self { root, real, view, places }
    }

    /// The tree of the next descriptors that another process handed over.
    pub(crate) fn from_descriptors(
        root: PathBuf,
        mut fds: impl Iterator<Item = OwnedFd>,
    ) -> io::Result<Self> {
        let mut next = || fds.next().ok_or(io::ErrorKind::InvalidData);
        Ok(Self::new(root, next()?, next()?, next()?))
    }

    /// The descriptors, to be handed over.
    pub(crate) fn descriptors(&self) -> [&OwnedFd; 3] {
        [&self.real, &self.view, &self.places]
    }

    pub(crate) fn view(&self) -> &OwnedFd {
        &self.view
    }

    /// Makes a place for the mask that will cover `real`.
    pub(crate) fn reserve(&self, dir: &Path, name: &OsStr, real: &OwnedFd) -> io::Result<()> {
        let places = beneath(&self.places, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        make_place(&places, name, is_kind(&fstat(real)?, libc::S_IFDIR))
    }

    /// The real directory `dir`, as an `O_PATH` descriptor. No link is followed.
    pub(crate) fn real_dir(&self, dir: &Path) -> io::Result<OwnedFd> {
        beneath(&self.real, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)
    }

    /// What is really at `name` in `dir`.
    pub(crate) fn real(&self, dir: &Path, name: &OsStr) -> io::Result<Option<OwnedFd>> {
        let parent = match self.real_dir(dir) {
            Err(error) if is_gone(&error) => return Ok(None),
            opened => opened?,
        };
        present(openat(&parent, name, LOOK, Mode::empty()))
    }

    /// Whether the view shows at this name what `real` is.
    pub(crate) fn is_shown(&self, dir: &Path, name: &OsStr, real: &OwnedFd) -> io::Result<bool> {
        let shown = beneath(&self.view, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let Some(shown) = present(openat(&shown, name, LOOK, Mode::empty()))? else {
            return Ok(false);
        };
        let (a, b) = (fstat(&shown)?, fstat(real)?);
        if is_kind(&a, libc::S_IFLNK) && is_kind(&b, libc::S_IFLNK) {
            return Ok(readlinkat(&shown, "")? == readlinkat(real, "")?);
        }
        Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }

    /// Whether the view has anything at this name.
    pub(crate) fn has_place(&self, dir: &Path, name: &OsStr) -> io::Result<bool> {
        let places = beneath(&self.places, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        Ok(present(openat(&places, name, LOOK, Mode::empty()))?.is_some())
    }

    /// Shows `real` at this name, in place of what was shown there.
    pub(crate) fn show(
        &self,
        dir: &Path,
        name: &OsStr,
        real: &OwnedFd,
        stretch: Stretch,
    ) -> io::Result<()> {
        let places = beneath(&self.places, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let stat = fstat(real)?;
        if is_kind(&stat, libc::S_IFLNK) {
            let target = readlinkat(real, "")?;
            unlinkat(&places, WAITING, UnlinkatFlags::NoRemoveDir).ok();
            symlinkat(target.as_os_str(), &places, WAITING)?;
            if let Some(place) = place_of(&places, name)? {
                self.uncover(dir, name)?;
                if is_kind(&place, libc::S_IFDIR) {
                    unlinkat(&places, name, UnlinkatFlags::RemoveDir)?;
                }
            }
            renameat2(&places, WAITING, &places, name, RenameFlags::empty())?;
            return Ok(());
        }
        let tree = sys::open_tree(real.as_fd())?;
        sys::set_attributes(tree.as_fd(), attributes(stretch))?;
        let is_dir = is_kind(&stat, libc::S_IFDIR);
        match place_of(&places, name)? {
            Some(place)
                if is_kind(&place, libc::S_IFDIR) == is_dir && !is_kind(&place, libc::S_IFLNK) =>
            {
                self.replace(dir, name, &tree)
            }
            Some(_) => {
                self.hide(dir, name)?;
                self.show_anew(dir, name, &places, &tree, is_dir)
            }
            None => self.show_anew(dir, name, &places, &tree, is_dir),
        }
    }

    fn show_anew(
        &self,
        dir: &Path,
        name: &OsStr,
        places: &OwnedFd,
        tree: &OwnedFd,
        is_dir: bool,
    ) -> io::Result<()> {
        make_place(places, name, is_dir)?;
        let shown = beneath(&self.view, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let place = openat(&shown, name, LOOK, Mode::empty())?;
        sys::attach(tree.as_fd(), place.as_fd())
    }

    /// Puts `tree` in the place of what is mounted there, with no moment between the two where the
    /// kernel can do that (Linux 6.5).
    fn replace(&self, dir: &Path, name: &OsStr, tree: &OwnedFd) -> io::Result<()> {
        let shown = beneath(&self.view, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let top = openat(&shown, name, LOOK, Mode::empty())?;
        match sys::attach_beneath(tree.as_fd(), top.as_fd()) {
            Ok(()) => self.uncover_once(dir, name),
            // Nothing is mounted there yet, or the kernel cannot.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.uncover(dir, name)?;
                let place = openat(&shown, name, LOOK, Mode::empty())?;
                sys::attach(tree.as_fd(), place.as_fd())
            }
            other => other,
        }
    }

    /// Makes `dir` itself a guarded directory, with nothing shown in it yet.
    pub(crate) fn make_view(&self, dir: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Ok(());
        };
        let places = beneath(&self.places, parent, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        match place_of(&places, name)? {
            Some(place) if is_kind(&place, libc::S_IFDIR) => self.uncover(parent, name)?,
            Some(_) => {
                self.uncover(parent, name)?;
                unlinkat(&places, name, UnlinkatFlags::NoRemoveDir)?;
                make_place(&places, name, true)?;
            }
            None => make_place(&places, name, true)?,
        }
        if let Some(real) = self.real(parent, name)? {
            let mode = Mode::from_bits_truncate(fstat(&real)?.st_mode & 0o7777);
            let place = openat(
                &places,
                name,
                OFlag::O_RDONLY | OFlag::O_DIRECTORY | CLOEXEC,
                Mode::empty(),
            )?;
            fchmod(&place, mode | Mode::S_IRWXU)?;
        }
        Ok(())
    }

    /// Covers a name in a directory that is not guarded: the mount lies on the real name, and comes
    /// off when the host replaces it.
    pub(crate) fn cover(&self, dir: &Path, name: &OsStr, cover: Cover<'_>) -> io::Result<()> {
        let shown = beneath(&self.view, dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let place = openat(&shown, name, LOOK, Mode::empty())?;
        if is_kind(&fstat(&place)?, libc::S_IFLNK) {
            // A mount would land on what it leads to, which has a name of its own.
            return Ok(());
        }
        let tree = match cover {
            Cover::ReadOnly => sys::open_tree(place.as_fd())?,
            Cover::Decoy(text) => self.decoy(text, is_kind(&fstat(&place)?, libc::S_IFDIR))?,
        };
        sys::set_attributes(tree.as_fd(), MountAttributes::READ_ONLY)?;
        let attached = sys::attach(tree.as_fd(), place.as_fd());
        // Only now: what has no name any more cannot be attached.
        self.hide(Path::new(""), OsStr::new(WAITING))?;
        attached
    }

    /// A detached file with `text`, or an empty directory; its name is left to be removed.
    fn decoy(&self, text: &str, is_dir: bool) -> io::Result<OwnedFd> {
        let name = OsStr::new(WAITING);
        make_place(&self.places, name, is_dir)?;
        if !is_dir {
            let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | CLOEXEC;
            // The place is read-only to everybody; its owner may open it all the same by mode.
            nix::sys::stat::fchmodat(
                &self.places,
                name,
                Mode::from_bits_truncate(0o644),
                nix::sys::stat::FchmodatFlags::FollowSymlink,
            )?;
            let file = openat(&self.places, name, flags, Mode::empty())?;
            std::fs::File::from(file).write_all(text.as_bytes())?;
        }
        sys::open_tree(openat(&self.view, name, LOOK, Mode::empty())?.as_fd())
    }

    /// Shows nothing at this name any more.
    pub(crate) fn hide(&self, dir: &Path, name: &OsStr) -> io::Result<()> {
        let places = match beneath(&self.places, dir, OFlag::O_PATH | OFlag::O_DIRECTORY) {
            Err(error) if is_gone(&error) => return Ok(()),
            opened => opened?,
        };
        let flag = match place_of(&places, name)? {
            None => return Ok(()),
            Some(place) if is_kind(&place, libc::S_IFDIR) => UnlinkatFlags::RemoveDir,
            Some(_) => UnlinkatFlags::NoRemoveDir,
        };
        self.uncover(dir, name)?;
        match unlinkat(&places, name, flag) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// The names that the view has in `dir`.
    pub(crate) fn names(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        list(&beneath(&self.places, dir, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?)
    }

    /// The names that are really in `dir`; none if it is gone.
    pub(crate) fn real_names(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        match beneath(&self.real, dir, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
            Err(error) if is_gone(&error) => Ok(Vec::new()),
            opened => list(&opened?),
        }
    }

    /// Takes off all that is mounted at the place of this name. Only where there is one: while the
    /// jail is built there is none, and the path would still be the host's.
    fn uncover(&self, dir: &Path, name: &OsStr) -> io::Result<()> {
        loop {
            match umount2(&self.path(dir, name), DETACH) {
                Ok(()) => {}
                // Nothing is mounted there, or nothing is there.
                Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn uncover_once(&self, dir: &Path, name: &OsStr) -> io::Result<()> {
        Ok(umount2(&self.path(dir, name), DETACH)?)
    }

    /// A path that leads through guarded directories alone, in which the agent can make no link.
    fn path(&self, dir: &Path, name: &OsStr) -> PathBuf {
        self.root.join(dir).join(name)
    }
}

const CLOEXEC: OFlag = OFlag::O_CLOEXEC;
const LOOK: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(CLOEXEC);
const DETACH: MntFlags = MntFlags::MNT_DETACH.union(MntFlags::UMOUNT_NOFOLLOW);

fn present(opened: nix::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

pub(crate) fn is_kind(stat: &FileStat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

fn place_of(places: &OwnedFd, name: &OsStr) -> io::Result<Option<FileStat>> {
    match fstatat(places, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

fn make_place(places: &OwnedFd, name: &OsStr, is_dir: bool) -> io::Result<()> {
    if is_dir {
        mkdirat(places, name, Mode::from_bits_truncate(0o755))?;
    } else {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDONLY | CLOEXEC;
        drop(openat(places, name, flags, Mode::from_bits_truncate(0o444))?);
    }
    Ok(())
}

/// A name in a directory, and what the filesystem says that it is.
pub(super) type Named = (PathBuf, Option<Type>);

/// The names in a directory, as far as they can be read.
pub(super) fn entries(dir: &OwnedFd) -> io::Result<Vec<nix::Result<Named>>> {
    let dir = openat(dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | CLOEXEC, Mode::empty())?;
    let mut entries = Dir::from_fd(dir)?;
    let names = entries.iter().map(|entry| {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        Ok((name.into(), entry.file_type()))
    });
    let is_name = |(name, _): &(PathBuf, _)| name.as_os_str() != "." && name.as_os_str() != "..";
    Ok(names.filter(|entry| entry.as_ref().map_or(true, is_name)).collect())
}

fn list(dir: &OwnedFd) -> io::Result<Vec<PathBuf>> {
    let names = entries(dir)?.into_iter().map(|entry| entry.map(|(name, _)| name));
    let names = names.filter(|name| name.as_ref().map_or(true, |name| name.as_os_str() != WAITING));
    Ok(names.collect::<nix::Result<_>>()?)
}
