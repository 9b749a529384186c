//! Processes: clone into namespaces, fork, exec, pidfds, keyrings.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{check, owned};

/// On which side of a clone or fork this is.
#[derive(Debug)]
pub(crate) enum Born {
    Child,
    Parent { child: libc::pid_t },
}

/// The argument of `clone3(2)`, up to the fields that are used here.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// Forks a child into new namespaces; `flags` are `CLONE_NEW*` and may hold `CLONE_PARENT`.
///
/// Only for a process with one thread: the child goes on with a copy of this one's memory, where a
/// lock that another thread held would stay locked for ever.
pub(crate) fn clone_with_namespaces(flags: libc::c_int) -> io::Result<Born> {
    let is_sibling = flags & libc::CLONE_PARENT != 0;
    let args = CloneArgs {
        flags: u64::from(flags.cast_unsigned()),
        // With CLONE_PARENT the kernel takes the caller's own exit signal and wants zero here.
        exit_signal: if is_sibling { 0 } else { u64::from(libc::SIGCHLD.cast_unsigned()) },
        ..CloneArgs::default()
    };
    // SAFETY: `args` has the kernel's layout and size and is only read during the call; without
    // CLONE_VM and a stack the call returns twice as fork does.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&args), size_of::<CloneArgs>())
    })?;
    side(pid)
}

/// Forks. Only for a process with one thread, as for [`clone_with_namespaces`].
pub(crate) fn fork() -> io::Result<Born> {
    clone_with_namespaces(0)
}

fn side(pid: libc::c_long) -> io::Result<Born> {
    match libc::pid_t::try_from(pid).map_err(io::Error::other)? {
        0 => Ok(Born::Child),
        child => Ok(Born::Parent { child }),
    }
}

/// Ends this process at once, without running anything that its parent registered for the end.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: `_exit` reads no memory and does not return.
    unsafe { libc::_exit(code.into()) }
}

/// Lets a closed pipe end this process again: a Rust program starts by ignoring that signal, and an
/// exec inherits it.
pub(crate) fn end_at_closed_pipe() -> io::Result<()> {
    // SAFETY: SIG_DFL runs no code of ours.
    if unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Replaces this process by `program`; only returns the error.
pub(crate) fn replace_program(
    program: &CStr,
    args: &[CString],
    env: &[CString],
) -> io::Result<Infallible> {
    let pointers = |strings: &[CString]| {
        let ends = std::iter::once(std::ptr::null());
        strings.iter().map(|s| s.as_ptr()).chain(ends).collect::<Vec<_>>()
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: both lists end in null and point to C strings that live until the call returns,
    // which it only does when it failed.
    unsafe { libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// A descriptor that stands for the process `pid`.
pub(crate) fn open_pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let raw = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    owned(raw)
}

/// Joins the user and the mount namespace of the process that `pidfd` stands for.
///
/// Only for a process with one thread (setns(2)).
pub(crate) fn join_user_and_mount_namespaces(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    // SAFETY: no memory is passed.
    check(unsafe { libc::setns(pidfd.as_raw_fd(), namespaces) })?;
    Ok(())
}

/// Sends `signal` to the process that `pidfd` stands for.
pub(crate) fn signal_pidfd(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo makes the kernel fill in what kill(2) would.
    check(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0)
    })?;
    Ok(())
}

/// Whether the process that `pidfd` stands for, perhaps a zombie, still has its pid.
pub(crate) fn has_pid(pidfd: BorrowedFd<'_>) -> bool {
    // Signal 0 sends nothing. A process that may not be signalled exists all the same.
    !matches!(signal_pidfd(pidfd, 0), Err(error) if error.raw_os_error() == Some(libc::ESRCH))
}

/// The wait status of the process that `pidfd` stands for, once its parent has collected it.
///
/// `None` where the kernel does not tell: before that moment, and before Linux 6.15.
pub(crate) fn wait_status(pidfd: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let asked = libc::PIDFD_INFO_EXIT;
    let info = process_info(pidfd, asked)?;
    Ok((info.mask & u64::from(asked) != 0).then_some(info.exit_code))
}

fn process_info(pidfd: BorrowedFd<'_>, asked: libc::c_uint) -> io::Result<libc::pidfd_info> {
    // SAFETY: `pidfd_info` is plain integers, for which all zeroes is a value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = asked.into();
    // SAFETY: the request number carries the size of `pidfd_info`, which outlives the call.
    check(unsafe {
        libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, std::ptr::from_mut(&mut info))
    })?;
    Ok(info)
}

/// The parent of the process that `pidfd` stands for, in this process's pid namespace.
///
/// An error before Linux 6.13, and when the process is collected.
pub(crate) fn parent_of(pidfd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(process_info(pidfd, libc::PIDFD_INFO_PID)?.ppid)
}

/// The pid that the process of `thread` has in the pid namespace `inside`.
///
/// An error before Linux 6.11, and when there is no such thread.
pub(crate) fn pid_inside(inside: BorrowedFd<'_>, thread: u32) -> io::Result<u32> {
    let request = libc::NS_GET_TGID_IN_PIDNS;
    // SAFETY: the request takes the number of a thread by value.
    let pid = check(unsafe { libc::ioctl(inside.as_raw_fd(), request, thread) })?;
    u32::try_from(pid).map_err(io::Error::other)
}

/// A copy of the descriptor `number` of the process `pid`.
pub(crate) fn foreign_descriptor(pid: u32, number: i32) -> io::Result<OwnedFd> {
    let pidfd = open_pidfd(pid.cast_signed())?;
    // SAFETY: no memory is passed.
    let raw = check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) })?;
    owned(raw)
}

/// Leaves the caller's session keyring for a new, empty one.
///
/// A kernel without keyrings (ENOSYS) has nothing to leave.
pub(crate) fn join_new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name asks for an anonymous keyring; no memory is passed.
    let joined =
        check(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, unnamed) });
    match joined {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => Err(error),
        _ => Ok(()),
    }
}
