//! System calls that nix does not wrap, one thin function each: the only home of `unsafe`.
//!
//! Nothing here decides anything. Descriptors come and go as `OwnedFd` and `BorrowedFd`; an error
//! is the kernel's errno as an `io::Error`.
#![expect(unsafe_code, reason = "the one module that talks to the kernel without nix")]

mod fd;
mod mount;
mod notify;
mod packet;
mod process;
mod tty;

pub(crate) use fd::{adopt, close_between, close_from, close_on_exec_from};
pub(crate) use mount::{
    Access, MountAttributes, attach, attach_beneath, clone_tree, idmap, new_filesystem, open_path,
    open_tree, pivot_here, set_attributes, set_own_attributes,
};
pub(crate) use notify::{Notification, Notifier, Verdict, install_with_listener, landlock_abi};
pub(crate) use packet::{attach_filter, receive_everything};
pub(crate) use process::{
    Born, clone_with_namespaces, end_at_closed_pipe, exit_now, foreign_descriptor, fork, has_pid,
    join_new_session_keyring, join_user_and_mount_namespaces, open_pidfd, parent_of, pid_inside,
    replace_program, signal_pidfd, wait_status,
};
pub(crate) use tty::{
    controlling_terminal, set_window_size, terminal_peer, unlock_terminal, window_size,
};

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Turns a system call's return value into a result.
fn check(result: impl Into<libc::c_long>) -> io::Result<libc::c_long> {
    let result = result.into();
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes over the descriptor that a system call just returned.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let raw = i32::try_from(result).map_err(io::Error::other)?;
    // SAFETY: the callers pass what the kernel just made for them; nothing else can close it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
