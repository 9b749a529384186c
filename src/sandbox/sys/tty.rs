//! Terminal ioctls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{check, owned};

/// Lets the other side of the terminal `master` be opened.
pub(crate) fn unlock_terminal(master: BorrowedFd<'_>) -> io::Result<()> {
    let unlocked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int, which outlives the call.
    check(unsafe {
        libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, std::ptr::from_ref(&unlocked))
    })?;
    Ok(())
}

/// Opens the program's side of the terminal `master`, without a path (Linux 4.13).
pub(crate) fn terminal_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes its flags by value.
    let raw = check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
    owned(raw)
}

/// Makes `terminal` the controlling terminal of the calling session leader.
pub(crate) fn controlling_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes its argument by value; 0 does not steal the terminal.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) })?;
    Ok(())
}

/// Rows and columns of a terminal.
pub(crate) fn window_size(terminal: BorrowedFd<'_>) -> io::Result<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize, which outlives the call.
    check(unsafe {
        libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, std::ptr::from_mut(&mut size))
    })?;
    Ok((size.ws_row, size.ws_col))
}

/// Sets rows and columns; the foreground group of the terminal gets SIGWINCH.
pub(crate) fn set_window_size(terminal: BorrowedFd<'_>, size: (u16, u16)) -> io::Result<()> {
    let size = libc::winsize { ws_row: size.0, ws_col: size.1, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize, which outlives the call.
    check(unsafe {
        libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, std::ptr::from_ref(&size))
    })?;
    Ok(())
}
