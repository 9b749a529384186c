//! The supervisor's side of a launch, and of the jail while it lives.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use crate::limits::{Cgroup, Confinement, Resources};
use crate::plan::Plan;
use crate::stage::STAGE_ARGUMENT;
use crate::step::{Step, StepFailed};
use crate::sys;
use crate::wire::{Channel, FromJail, ToJail};

/// Why a jail could not be made. Nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot start the stage")]
    Spawn(#[source] io::Error),
    #[error("cannot {step}")]
    Step {
        step: Step,
        #[source]
        cause: io::Error,
    },
    #[error("the stage ended without a word")]
    Silent,
}

impl From<StepFailed> for LaunchError {
    fn from(failed: StepFailed) -> Self {
        Self::Step { step: failed.step, cause: io::Error::from_raw_os_error(failed.errno) }
    }
}

/// A jail that is complete and waits for [`Jail::go`].
#[derive(Debug)]
pub struct Starting {
    pub jail: Jail,
    pub door: Door,
    /// Decoys by their place in the plan's masks.
    pub decoys: Option<OwnedFd>,
    /// The outer side of the jail's terminal.
    pub terminal: Option<OwnedFd>,
}

/// The sockets in the jail's network namespace, to be served from here.
#[derive(Debug)]
pub struct Door {
    pub tcp: Vec<(u16, OwnedFd)>,
    pub dns_udp: Vec<OwnedFd>,
    pub dns_tcp: Vec<OwnedFd>,
    pub tap: OwnedFd,
}

/// What the jail tells while it lives.
#[derive(Debug)]
pub enum JailEvent {
    /// The agent's notifications arrive here; it will run its program next.
    Listener(OwnedFd),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command is over, and everything else in the jail with it.
    Ended(Ended),
    /// The command was never run.
    NotRun(LaunchError),
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(u8),
    Signaled(i32),
}

/// A jail's pid 1, from outside. Dropping it kills the jail.
#[derive(Debug)]
pub struct Jail {
    channel: Channel,
    pidfd: OwnedFd,
    confinement: Confinement,
    /// Held so that it is removed after the last process.
    _cgroup: Option<Cgroup>,
}

/// Builds the jail of `plan` and stops short of running its command.
///
/// To be called on a thread that lives as long as the jail shall: the kernel ties a child's
/// parent-death signal to the thread that made it. `name` tells control groups apart.
pub fn launch(plan: &Plan, name: &str) -> Result<Starting, LaunchError> {
    let (channel, jail_end) = Channel::pair().map_err(LaunchError::Spawn)?;
    let memory = sealed(plan).map_err(LaunchError::Spawn)?;
    let mut stage = spawn_stage(&memory, &jail_end).map_err(LaunchError::Spawn)?;
    // From here on the jail alone holds its end, and its death is an end of file here.
    drop((memory, jail_end));
    let started = assemble(plan, name, channel);
    stage.wait().map_err(LaunchError::Spawn)?;
    started
}

/// The plan in memory that nobody can change any more.
fn sealed(plan: &Plan) -> io::Result<OwnedFd> {
    let bytes = postcard::to_stdvec(plan).map_err(io::Error::other)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let memory = memfd_create(c"kvro-plan", flags)?;
    File::from(memory.try_clone()?).write_all(&bytes)?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(memory)
}

fn spawn_stage(plan: &OwnedFd, channel: &Channel) -> io::Result<Child> {
    let inherited = [plan.as_fd(), channel.as_fd()];
    for fd in inherited {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    #[expect(clippy::disallowed_methods, reason = "this is the launcher")]
    let mut command = Command::new("/proc/self/exe");
    command.arg0("kvro-jail").arg(STAGE_ARGUMENT).env_clear();
    command.args(inherited.map(|fd| fd.as_raw_fd().to_string()));
    command.spawn()
}

/// Collects what the stage and pid 1 report until the jail is complete.
fn assemble(plan: &Plan, name: &str, channel: Channel) -> Result<Starting, LaunchError> {
    let mut pid_1 = None;
    loop {
        let received = channel.receive::<FromJail>().map_err(LaunchError::Spawn)?;
        let Some((message, fds)) = received else {
            return Err(LaunchError::Silent);
        };
        match message {
            FromJail::Born { pid } => {
                let pidfd = sys::open_pidfd(pid).map_err(LaunchError::Spawn)?;
                pid_1 = Some((pid, pidfd));
            }
            FromJail::Failed(failed) => {
                reap(pid_1.map(|(_, pidfd)| pidfd));
                return Err(failed.into());
            }
            FromJail::Ready { dns_udp, dns_tcp, tap, decoys, terminal } => {
                let (pid, pidfd) = pid_1.ok_or(LaunchError::Silent)?;
                let mut fds = fds.into_iter();
                let mut take = |count: usize| fds.by_ref().take(count).collect::<Vec<_>>();
                let tcp = take(plan.door_ports.len());
                let tcp = plan.door_ports.iter().copied().zip(tcp).collect();
                let (dns_udp, dns_tcp) = (take(dns_udp.into()), take(dns_tcp.into()));
                let mut one = |is_there: bool| take(is_there.into()).pop();
                let (tap, decoys, terminal) = (one(tap), one(decoys), one(terminal));
                let door = Door { tcp, dns_udp, dns_tcp, tap: tap.ok_or(LaunchError::Silent)? };
                let (confinement, cgroup) = confine(&plan.resources, name, pid);
                let jail = Jail { channel, pidfd, confinement, _cgroup: cgroup };
                return Ok(Starting { jail, door, decoys, terminal });
            }
            FromJail::Listener
            | FromJail::Exited { .. }
            | FromJail::Signaled { .. }
            | FromJail::Stopped { .. } => return Err(LaunchError::Silent),
        }
    }
}

/// Puts pid 1 into a control group where one is to be had; resource limits hold otherwise.
fn confine(resources: &Resources, name: &str, pid: i32) -> (Confinement, Option<Cgroup>) {
    if resources.is_empty() {
        return (Confinement::None, None);
    }
    match Cgroup::make(name, resources) {
        Some(cgroup) if cgroup.adopt(pid).is_ok() => (Confinement::Cgroup, Some(cgroup)),
        _ => (Confinement::ResourceLimits, None),
    }
}

/// Waits for a pid 1 that failed; it reports and ends.
fn reap(pidfd: Option<OwnedFd>) {
    if let Some(pidfd) = pidfd {
        // An error means that there is nobody to wait for.
        waitid(Id::PIDFd(pidfd.as_fd()), WaitPidFlag::WEXITED).ok();
    }
}

impl Jail {
    /// Lets the agent run. Once.
    pub fn go(&self) -> io::Result<()> {
        self.ask(ToJail::Go)
    }

    /// How the resource ceilings are held.
    #[must_use]
    pub fn confinement(&self) -> Confinement {
        self.confinement
    }

    /// Waits for what the jail tells next; readable is [`AsFd`].
    ///
    /// `None` is the end: pid 1 is gone.
    pub fn event(&self) -> io::Result<Option<JailEvent>> {
        let Some((message, mut fds)) = self.channel.receive::<FromJail>()? else {
            return Ok(None);
        };
        let event = match message {
            FromJail::Listener => JailEvent::Listener(fds.pop().ok_or(io::ErrorKind::InvalidData)?),
            FromJail::Stopped { signal } => JailEvent::Stopped(signal),
            FromJail::Exited { code } => JailEvent::Ended(Ended::Exited(code)),
            FromJail::Signaled { signal } => JailEvent::Ended(Ended::Signaled(signal)),
            FromJail::Failed(failed) => JailEvent::NotRun(failed.into()),
            FromJail::Born { .. } | FromJail::Ready { .. } => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        };
        Ok(Some(event))
    }

    /// Sends `signal` to the command.
    pub fn signal_command(&self, signal: i32) -> io::Result<()> {
        self.ask(ToJail::SignalCommand(signal))
    }

    /// Sends `signal` to the command's process group, as a terminal does.
    pub fn signal_group(&self, signal: i32) -> io::Result<()> {
        self.ask(ToJail::SignalGroup(signal))
    }

    /// Sends `signal` to every process of the jail but pid 1.
    pub fn signal_all(&self, signal: i32) -> io::Result<()> {
        self.ask(ToJail::SignalAll(signal))
    }

    /// Kills every process of the jail at once.
    pub fn kill(&self) -> io::Result<()> {
        match sys::signal_pidfd(self.pidfd.as_fd(), libc::SIGKILL) {
            // It is dead already.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Readable when every process of the jail is dead: the kernel ends the others before pid 1.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits until nothing of the jail is alive.
    pub fn wait(&self) -> io::Result<()> {
        loop {
            match waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED) {
                Err(nix::errno::Errno::EINTR) => {}
                // Somebody waited already.
                Ok(_) | Err(nix::errno::Errno::ECHILD) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn ask(&self, request: ToJail) -> io::Result<()> {
        self.channel.send(&request, &[])
    }
}

impl AsFd for Jail {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; closing the socket ends the jail as well.
        drop(self.kill());
        drop(self.wait());
    }
}
