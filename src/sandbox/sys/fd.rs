//! Descriptors by number, as they arrive over an exec or a socket.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::check;

/// Takes over a descriptor that this process was given under a known number.
///
/// Errors when the number is not an open descriptor.
pub(crate) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` with F_GETFD reads no memory; a closed number answers EBADF.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: the number is open and was handed over, by the exec that made this process or by
    // SCM_RIGHTS; the callers adopt each number once, before they drop or open anything else.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every descriptor from `first` upwards.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    close_range(first, u32::MAX, 0)
}

/// Closes every descriptor from `first` up to but not including `end`.
pub(crate) fn close_between(first: u32, end: u32) -> io::Result<()> {
    if first >= end { Ok(()) } else { close_range(first, end - 1, 0) }
}

/// Lets every descriptor from `first` upwards close at the next exec.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;
    close_range(first, u32::MAX, CLOSE_RANGE_CLOEXEC)
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the stage closes before it owns anything but the descriptors that it leaves out; no
    // owner of a closed number exists. Marking for the exec closes nothing that is still used.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })?;
    Ok(())
}
