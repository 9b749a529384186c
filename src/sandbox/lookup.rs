//! Lookups that follow no link: what somebody planted leads nowhere else.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// Opens `path` below `root` without leaving it and without following a link.
pub(crate) fn beneath(root: &OwnedFd, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    Ok(openat2(root, path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve))?)
}

/// Whether a lookup failed because nothing is there, or a link on the way.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}
