//! The watch on the decoys, held outside: it fires when anything inside opens one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// Watches on every decoy.
#[derive(Debug)]
pub(super) struct DecoyWatch {
    inotify: Inotify,
    /// The place in the plan's masks that each watch stands for.
    masks: BTreeMap<WatchDescriptor, usize>,
}

impl DecoyWatch {
    /// Watches the decoys for `masks` in the directory `decoys`.
    ///
    /// A mask whose name was gone at launch has no decoy. `ENOSPC` means that
    /// `fs.inotify.max_user_watches` is too low for that many.
    pub(super) fn new(
        decoys: BorrowedFd<'_>,
        masks: impl IntoIterator<Item = usize>,
    ) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut watched = BTreeMap::new();
        for mask in masks {
            let path = PathBuf::from(format!("/proc/self/fd/{}/{mask}", decoys.as_raw_fd()));
            match inotify.add_watch(&path, AddWatchFlags::IN_OPEN) {
                Ok(watch) => drop(watched.insert(watch, mask)),
                Err(Errno::ENOENT) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(Self { inotify, masks: watched })
    }

    /// The masks whose decoys were opened since the last call.
    pub(super) fn opened(&self) -> io::Result<Vec<usize>> {
        match self.inotify.read_events() {
            Ok(events) => {
                // The end of the decoys' filesystem is told as well (IN_UNMOUNT, IN_IGNORED).
                let opened = events.iter().filter(|e| e.mask.contains(AddWatchFlags::IN_OPEN));
                Ok(opened.filter_map(|event| self.masks.get(&event.wd).copied()).collect())
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Vec::new()),
            Err(other) => Err(other.into()),
        }
    }
}

impl std::os::fd::AsFd for DecoyWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
