//! The watch on the real directories: what the host does to their names.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::stat::fstat;
use nix::unistd::{chdir, fchdir};

/// What happened to names since the last look.
#[derive(Debug)]
pub(super) enum Changes {
    Names(Vec<(PathBuf, PathBuf)>),
    /// Some were lost: everything has to be looked at.
    Unknown,
}

/// Watches on guarded directories.
#[derive(Debug)]
pub(super) struct HostWatch {
    inotify: Inotify,
    dirs: BTreeMap<WatchDescriptor, PathBuf>,
    /// Which directory, by device and inode, each watch is on.
    watched: BTreeMap<PathBuf, (WatchDescriptor, Identity)>,
}

type Identity = (libc::dev_t, libc::ino_t);

impl HostWatch {
    pub(super) fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self { inotify, dirs: BTreeMap::new(), watched: BTreeMap::new() })
    }

    /// Watches the directory `dir`, which is `real`, unless it is watched already; says whether it
    /// is another directory than before.
    ///
    /// `ENOSPC` means that `fs.inotify.max_user_watches` is too low.
    pub(super) fn watch(&mut self, dir: &Path, real: &OwnedFd) -> io::Result<bool> {
        let stat = fstat(real)?;
        let identity = (stat.st_dev, stat.st_ino);
        if let Some((_, known)) = self.watched.get(dir) {
            if *known == identity {
                return Ok(false);
            }
            self.forget(dir);
        }
        let watch = watch_dir(&self.inotify, real, CHANGES)??;
        self.dirs.insert(watch, dir.to_owned());
        self.watched.insert(dir.to_owned(), (watch, identity));
        Ok(true)
    }

    /// Stops watching `dir`.
    pub(super) fn forget(&mut self, dir: &Path) {
        if let Some((watch, _)) = self.watched.remove(dir) {
            // Another name of the same directory may have taken the watch over.
            if self.dirs.get(&watch).is_some_and(|known| known == dir) {
                self.dirs.remove(&watch);
                // A directory that is gone has taken its watch along.
                self.inotify.rm_watch(watch).ok();
            }
        }
    }

    /// The names that changed, as `(directory, name)`.
    pub(super) fn changes(&self) -> io::Result<Changes> {
        let events = match self.inotify.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Changes::Names(Vec::new())),
            Err(other) => return Err(other.into()),
        };
        let mut names = Vec::new();
        for event in events {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                return Ok(Changes::Unknown);
            }
            if let (Some(dir), Some(name)) = (self.dirs.get(&event.wd), event.name) {
                names.push((dir.clone(), name.into()));
            }
        }
        Ok(Changes::Names(names))
    }
}

const CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_ONLYDIR);

/// Watches the directory `real`; the inner error is the watch's.
///
/// The working directory is changed for it: a watch takes a path, and a real directory has none in
/// the jail.
pub(super) fn watch_dir(
    inotify: &Inotify,
    real: &OwnedFd,
    changes: AddWatchFlags,
) -> io::Result<nix::Result<WatchDescriptor>> {
    fchdir(real)?;
    let watched = inotify.add_watch(".", changes);
    chdir("/")?;
    Ok(watched)
}

impl AsFd for HostWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
