//! The stage: our own binary, run again as a single-threaded process that makes pid 1.
//!
//! Why re-exec: clone and unshare leave a child with whatever locks other threads held, and the
//! supervisor has threads. A fresh exec has none, whatever the supervisor is doing, and its
//! environment and command line, which the jail's pid 1 keeps showing in `/proc/1`, hold nothing.
//!
//! The stage clones pid 1 as its sibling (`CLONE_PARENT`, so that the supervisor is its parent, can
//! wait for it and pulls it along in death). When the plan comes, it prepares what only the host's
//! root can (idmapped trees), writes pid 1's id maps from outside, hands both over, and is gone.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::guard::{self, Guards};
use crate::identity;
use crate::init;
use crate::mounts::Prepared;
use crate::plan::Plan;
use crate::step::{During, Step, StepFailed};
use crate::sys::{self, Born};
use crate::wire::{Channel, FromJail, FromPid1, ToPid1, ToStage};

/// The first argument that makes the program a stage; the numbers of its sockets follow.
pub const STAGE_ARGUMENT: &str = "__stage";

/// Every namespace of the level `full`.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    // Defence::PidNamespace: lifetime::orphans_end_with_the_command.
    | libc::CLONE_NEWPID
    // Defence::NetworkNamespace: network::the_hosts_loopback_is_out_of_reach.
    | libc::CLONE_NEWNET
    // Defence::IpcNamespace: privileges::agent_does_not_reach_the_hosts_shared_memory.
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
    let [channel, guard] = numbers else {
        return REFUSED;
    };
    let (Ok(channel), Ok(guard)) = (inherit(channel), inherit(guard)) else {
        return REFUSED;
    };
    if close_all_but(channel.as_raw_fd(), guard.as_raw_fd()).is_err() {
        return REFUSED;
    }
    let (channel, supervisor) = (Channel::from_fd(channel), Channel::from_fd(guard));
    match make_pid_1(&channel, supervisor) {
        Ok(Side::Stage(None)) => 0,
        Ok(Side::Stage(Some(guards))) => {
            let (guards, supervisor) = *guards;
            // Its end of file tells of the jail's own end.
            drop(channel);
            guards.serve(&supervisor).map_or(REFUSED, |()| 0)
        }
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
    /// As the guard, where there is something to guard.
    Stage(Option<Box<(Guards, Channel)>>),
    Pid1(u8),
}

fn make_pid_1(channel: &Channel, supervisor: Channel) -> Result<Side, StepFailed> {
    die_with_supervisor(channel).during(|| Step::EnterNamespaces)?;
    let (to_pid_1, from_stage) = Channel::pair().during(|| Step::EnterNamespaces)?;
    let flags = NAMESPACES | libc::CLONE_PARENT;
    match sys::clone_with_namespaces(flags).during(|| Step::EnterNamespaces)? {
        Born::Child => {
            drop((to_pid_1, supervisor));
            Ok(Side::Pid1(init::run(channel, from_stage)))
        }
        Born::Parent { child } => {
            drop(from_stage);
            channel.send(&FromJail::Born { pid: child }, &[]).during(|| Step::Report)?;
            let guards = hand_over(child, channel, &to_pid_1, &supervisor)?;
            Ok(Side::Stage(guards.map(|guards| Box::new((guards, supervisor)))))
        }
    }
}

/// Gives pid 1 what it needs from outside, and becomes its guard where it has one. It reads an end
/// of file instead if this fails, and ends.
fn hand_over(
    pid_1: libc::pid_t,
    channel: &Channel,
    to_pid_1: &Channel,
    supervisor: &Channel,
) -> Result<Option<Guards>, StepFailed> {
    let Some((ToStage::Plan, fds)) = channel.receive().during(|| Step::ReadPlan)? else {
        // No jail is wanted any more.
        return Ok(None);
    };
    let memory = single(fds).during(|| Step::ReadPlan)?;
    let plan = read_plan(&memory).during(|| Step::ReadPlan)?;
    let prepared = Prepared::by_host_root(&plan)?;
    identity::map(pid_1, plan.identity).during(|| Step::MapIdentity)?;
    to_pid_1.send(&ToPid1::Plan, &[memory.as_fd()]).during(|| Step::Report)?;
    prepared.send(to_pid_1).during(|| Step::Report)?;
    if plan.guards.is_empty() {
        return Ok(None);
    }
    let Some((FromPid1::Laid, fds)) = to_pid_1.receive().during(|| Step::EnterGuard)? else {
        // Pid 1 failed and has said why.
        return Ok(None);
    };
    guard::enter(pid_1, plan.identity, supervisor)?;
    let mut guards = Guards::new(&plan.guards, fds).during(|| Step::EnterGuard)?;
    guards.watch()?;
    to_pid_1.send(&ToPid1::Guarded, &[]).during(|| Step::Report)?;
    Ok(Some(guards))
}

/// Dies when the thread that launched this process dies, or at once if it is dead already.
///
/// To be called again after each change of credentials, which clears the setting (prctl(2)).
pub(crate) fn die_with_supervisor(channel: &Channel) -> io::Result<()> {
    // Defence::Lifeline: lifetime::a_launch_ends_with_its_supervisor_at_every_point.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut lifeline = [PollFd::new(channel.as_fd(), PollFlags::empty())];
    poll(&mut lifeline, PollTimeout::ZERO)?;
    let hung_up = lifeline[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP));
    if hung_up { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// Reads the plan in `memory`, whoever has read it before.
pub(crate) fn read_plan(memory: &OwnedFd) -> io::Result<Plan> {
    let mut file = File::from(memory.try_clone()?);
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// The one descriptor that a message brings.
pub(crate) fn single(mut descriptors: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    descriptors.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
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
    // Defence::ClosedDescriptors: privileges::the_callers_descriptors_stay_outside.
    let (low, high) = (a.min(b).cast_unsigned(), a.max(b).cast_unsigned());
    sys::close_between(3, low)?;
    sys::close_between(low + 1, high)?;
    sys::close_from(high + 1)
}
