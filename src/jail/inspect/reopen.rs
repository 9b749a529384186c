//! Directories that a run left closed to their own owner, opened for a look.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// Opens the directory `path` below `top` without following a link on the way.
///
/// Another jail of the same workspace may be alive: what it swaps meanwhile leads nowhere.
pub(super) fn directory_below(top: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let within = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new().flags(flags).resolve(within | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    loop {
        // A rename elsewhere can make the kernel unsure whether it is still below.
        match openat2(top, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            opened => return opened,
        }
    }
}

/// A directory with its owner's rights added; they are taken back when this is dropped.
#[derive(Debug)]
pub(super) struct Reopened {
    directory: OwnedFd,
    mode: Permissions,
}

impl Reopened {
    /// `None` where the owner may do everything already.
    pub(super) fn open(top: &OwnedFd, path: &Path) -> io::Result<Option<Self>> {
        let directory = directory_below(top, path)?;
        let mode = fs::metadata(by_descriptor(&directory))?.permissions();
        if mode.mode() & 0o700 == 0o700 {
            return Ok(None);
        }
        open_up(&directory, &mode)?;
        Ok(Some(Self { directory, mode }))
    }
}

/// Adds the owner's rights to the directory `path` below `top`, for good.
pub(super) fn open_for_good(top: &OwnedFd, path: &Path) -> io::Result<()> {
    let directory = directory_below(top, path)?;
    let mode = fs::metadata(by_descriptor(&directory))?.permissions();
    if mode.mode() & 0o700 == 0o700 { Ok(()) } else { open_up(&directory, &mode) }
}

fn open_up(directory: &OwnedFd, mode: &Permissions) -> io::Result<()> {
    let open = Permissions::from_mode(mode.mode() & 0o7777 | 0o700);
    fs::set_permissions(by_descriptor(directory), open)
}

impl Drop for Reopened {
    fn drop(&mut self) {
        // By its descriptor, wherever it was moved.
        drop(fs::set_permissions(by_descriptor(&self.directory), self.mode.clone()));
    }
}

/// A descriptor that only names a path cannot be asked to change it; its link in `/proc` can.
fn by_descriptor(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", directory.as_raw_fd())
}
