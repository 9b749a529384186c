//! Probes of the system call filter.
//!
//! `passes` asks who answers a call, the filter or the kernel, without performing it: the probe
//! puts a filter of its own behind the jail's, which hands the call to a tracer. A refusal of the
//! jail's filter comes first; what it lets pass ends at the tracer. So the most dangerous call can
//! be tried outside as well, by whoever, and a refusal is never the kernel's own.

use std::io;
use std::os::fd::AsFd as _;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{errno_name, number, ok};
use crate::raw::{self, Side};

pub(super) fn perform(words: &[&str]) -> Option<io::Result<String>> {
    Some(match words {
        ["passes", call, args @ ..] => passes(call, args),
        #[cfg(target_arch = "x86_64")]
        ["passes-32-bit"] => asked(AUDIT_ARCH_I386, GETPID_32_BIT, raw::call_32_bit),
        ["unshare-user"] => unshare_user(),
        ["clone-user"] => clone_user(),
        ["type-for-the-user"] => type_for_the_user(),
        _ => return None,
    })
}

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH_I386: u32 = 0x4000_0003;
#[cfg(target_arch = "x86_64")]
const GETPID_32_BIT: u32 = 20;

fn passes(call: &str, args: &[&str]) -> io::Result<String> {
    let call: i64 = number(call)?;
    let mut numbers = [0; 6];
    for (place, arg) in numbers.iter_mut().zip(args) {
        *place = number(arg)?;
    }
    let low = u32::try_from(call).map_err(io::Error::other)?;
    asked(NATIVE, low, move || raw::call(call, numbers))
}

/// `passes` where the tracer was asked, else the errno that came without asking it.
fn asked(arch: u32, call: u32, perform: impl FnOnce() -> io::Result<i64>) -> io::Result<String> {
    let child = match raw::fork()? {
        Side::Child => {
            let ready = ptrace::traceme()
                .and_then(|()| raise(Signal::SIGSTOP))
                .map_err(io::Error::from)
                .and_then(|()| raw::ask_tracer_about(arch, call));
            if ready.is_err() {
                raw::exit_now(NOT_READY);
            }
            let errno = perform().err().and_then(|error| error.raw_os_error());
            raw::exit_now(errno.unwrap_or(0))
        }
        Side::Parent { child } => Pid::from_raw(child),
    };
    waitpid(child, None)?;
    let options = ptrace::Options::PTRACE_O_TRACESECCOMP | ptrace::Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(child, options)?;
    ptrace::cont(child, None)?;
    match waitpid(child, None)? {
        WaitStatus::Exited(_, NOT_READY) => Err(io::Error::other("cannot be traced")),
        WaitStatus::Exited(_, 0) => Ok("performed".to_owned()),
        WaitStatus::Exited(_, errno) => Ok(errno_name(errno)),
        WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_SECCOMP) => {
            kill(child, Signal::SIGKILL)?;
            waitpid(child, None)?;
            Ok("passes".to_owned())
        }
        other @ (WaitStatus::Signaled(..)
        | WaitStatus::Stopped(..)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(_)
        | WaitStatus::Continued(_)
        | WaitStatus::StillAlive) => Ok(format!("{other:?}")),
    }
}

/// No errno: they are below 200.
const NOT_READY: i32 = 250;

fn unshare_user() -> io::Result<String> {
    unshare(CloneFlags::CLONE_NEWUSER)?;
    Ok(ok())
}

fn clone_user() -> io::Result<String> {
    match raw::clone(libc::CLONE_NEWUSER)? {
        Side::Child => raw::exit_now(0),
        Side::Parent { child } => {
            waitpid(Pid::from_raw(child), None)?;
            Ok(ok())
        }
    }
}

/// Types into a terminal that is this session's own.
fn type_for_the_user() -> io::Result<String> {
    // The terminal hangs up when this ends.
    raw::ignore(Signal::SIGHUP)?;
    let pty = nix::pty::openpty(None, None)?;
    raw::take_terminal(pty.slave.as_fd())?;
    raw::type_into(pty.slave.as_fd())?;
    Ok(ok())
}
