//! The stage: our own binary, run again as a single-threaded process that makes pid 1.
//!
//! Why re-exec: clone and unshare leave a child with whatever locks other threads held, and the
//! supervisor has threads. A fresh exec has none, whatever the supervisor is doing, and its
//! environment and command line, which the jail's pid 1 keeps showing in `/proc/1`, hold nothing.
//!
//! The stage prepares what only the host's root can (idmapped trees), clones pid 1 as its sibling
//! (`CLONE_PARENT`, so that the supervisor is its parent, can wait for it and pulls it along in
//! death), writes its id maps from outside, and is gone.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use crate::identity;
use crate::init;
use crate::mounts::Prepared;
use crate::plan::Plan;
use crate::step::{During, Step, StepFailed};
use crate::sys::{self, Born};
use crate::wire::{Channel, FromJail};

/// The first argument that makes the program a stage; the descriptors' numbers follow.
pub const STAGE_ARGUMENT: &str = "__stage";

/// Every namespace of the level `full`.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Runs the stage; `numbers` are the arguments behind [`STAGE_ARGUMENT`].
///
/// Returns the exit code of the process that it is called in: the stage, or pid 1 of the jail.
/// Somebody who runs the stage by hand gets 125 and nothing else.
#[must_use]
pub fn run(numbers: &[String]) -> u8 {
    const REFUSED: u8 = 125;
    let [plan, channel] = numbers else {
        return REFUSED;
    };
    let (Ok(plan), Ok(channel)) = (inherit(plan), inherit(channel)) else {
        return REFUSED;
    };
    if close_all_but(plan.as_raw_fd(), channel.as_raw_fd()).is_err() {
        return REFUSED;
    }
    let channel = Channel::from_fd(channel);
    match make_pid_1(File::from(plan), &channel) {
        Ok(Side::Stage) => 0,
        Ok(Side::Pid1(code)) => code,
        Err(failed) => {
            // A supervisor that is gone needs no report.
            drop(channel.send(&FromJail::Failed(failed), &[]));
            REFUSED
        }
    }
}

/// Which of the two processes goes on.
enum Side {
    Stage,
    Pid1(u8),
}

fn make_pid_1(plan: File, channel: &Channel) -> Result<Side, StepFailed> {
    die_with_supervisor(channel).during(|| Step::ReadPlan)?;
    let plan = read_plan(plan).during(|| Step::ReadPlan)?;
    let prepared = Prepared::by_host_root(&plan)?;
    let (mapped, tell) = pipe2(OFlag::O_CLOEXEC).during(|| Step::EnterNamespaces)?;
    let flags = NAMESPACES | libc::CLONE_PARENT;
    match sys::clone_with_namespaces(flags).during(|| Step::EnterNamespaces)? {
        Born::Child => {
            drop(tell);
            Ok(Side::Pid1(init::run(&plan, prepared, channel, mapped)))
        }
        Born::Parent { child } => {
            // From here on pid 1 waits for one byte; an end of file instead ends it.
            channel.send(&FromJail::Born { pid: child }, &[]).during(|| Step::Report)?;
            identity::map(child, plan.identity).during(|| Step::MapIdentity)?;
            File::from(tell).write_all(b"m").during(|| Step::MapIdentity)?;
            Ok(Side::Stage)
        }
    }
}

/// Dies when the thread that launched this process dies, or at once if it is dead already.
///
/// To be called again after each change of credentials, which clears the setting (prctl(2)).
pub(crate) fn die_with_supervisor(channel: &Channel) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut lifeline = [PollFd::new(std::os::fd::AsFd::as_fd(channel), PollFlags::empty())];
    poll(&mut lifeline, PollTimeout::ZERO)?;
    let hung_up = lifeline[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP));
    if hung_up { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

fn read_plan(mut file: File) -> io::Result<Plan> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

fn inherit(number: &str) -> io::Result<OwnedFd> {
    let number: RawFd = number.parse().map_err(io::Error::other)?;
    if number < 3 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let fd = sys::adopt(number)?;
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(fd)
}

/// Closes what else came over the exec: the caller's descriptors are not the jail's.
fn close_all_but(a: RawFd, b: RawFd) -> io::Result<()> {
    let (low, high) = (a.min(b).cast_unsigned(), a.max(b).cast_unsigned());
    sys::close_between(3, low)?;
    sys::close_between(low + 1, high)?;
    sys::close_from(high + 1)
}
