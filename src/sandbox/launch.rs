//! The supervisor's side of a launch.
//!
//! The stage is started first and makes what no plan changes (its processes, their namespaces)
//! while the supervisor still reads policies and looks over the workspace.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::guard::GuardHandle;
use crate::jail::{Jail, Pid1};
use crate::limits::{Cgroup, Confinement, Resources};
use crate::plan::Plan;
use crate::stage::STAGE_ARGUMENT;
use crate::step::{Step, StepFailed};
use crate::wire::{Channel, FromJail, ToStage};

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

/// A jail that is complete, every layer of it in force, and waits for [`Jail::go`].
#[derive(Debug)]
pub struct Starting {
    pub jail: Jail,
    pub door: Door,
    /// The system calls of the jail that wait for a verdict arrive here.
    pub calls: OwnedFd,
    /// Where names are guarded.
    pub guard: Option<GuardHandle>,
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

/// A jail whose processes exist and know nothing yet. Dropping it ends them.
#[derive(Debug)]
pub struct Stage {
    /// Taken by the launch, as the guard's.
    process: Option<Child>,
    /// Taken by the launch.
    ends: Option<Ends>,
    /// Known once it is asked for; taken by the launch.
    pid_1: Option<Pid1>,
}

/// The supervisor's ends of both sockets.
#[derive(Debug)]
struct Ends {
    jail: Channel,
    guard: Channel,
}

impl Stage {
    /// Starts the stage.
    ///
    /// To be called on a thread that lives as long as the jail shall: the kernel ties a child's
    /// parent-death signal to the thread that made it.
    pub fn start() -> Result<Self, LaunchError> {
        let pair = || Channel::pair().map_err(LaunchError::Spawn);
        let ((jail, jail_end), (guard, guard_end)) = (pair()?, pair()?);
        // The jail alone holds its end from here on, and its death is an end of file here.
        let process = spawn(&jail_end, &guard_end).map_err(LaunchError::Spawn)?;
        Ok(Self { process: Some(process), ends: Some(Ends { jail, guard }), pid_1: None })
    }

    /// The jail's pid 1, as a pidfd. It waits for the launch.
    pub fn pid_1(&mut self) -> Result<BorrowedFd<'_>, LaunchError> {
        let pid_1 = match self.pid_1.take() {
            Some(pid_1) => pid_1,
            None => self.ends.as_ref().ok_or(LaunchError::Silent)?.jail_born()?,
        };
        let pid_1: &Pid1 = self.pid_1.insert(pid_1);
        Ok(pid_1.as_fd())
    }

    /// Builds the jail of `plan` and stops short of running its command. `name` tells control
    /// groups apart.
    pub fn launch(mut self, plan: &Plan, name: &str) -> Result<Starting, LaunchError> {
        self.pid_1()?;
        let (Some(pid_1), Some(Ends { jail, guard })) = (self.pid_1.take(), self.ends.take())
        else {
            return Err(LaunchError::Silent);
        };
        let started = assemble(plan, name, pid_1, jail);
        let mut process = self.process.take().ok_or(LaunchError::Silent)?;
        match started {
            Ok(starting) if !plan.guards.is_empty() => {
                let guard = Some(GuardHandle::new(process, guard));
                Ok(Starting { guard, ..starting })
            }
            other => {
                drop(guard);
                process.wait().map_err(LaunchError::Spawn)?;
                other
            }
        }
    }
}

impl Ends {
    /// The pid 1 that the stage made.
    fn jail_born(&self) -> Result<Pid1, LaunchError> {
        match self.jail.receive().map_err(LaunchError::Spawn)? {
            Some((FromJail::Born { pid }, _)) => Pid1::adopt(pid).map_err(LaunchError::Spawn),
            Some((FromJail::Failed(failed), _)) => Err(failed.into()),
            _ => Err(LaunchError::Silent),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let (Some(ends), Some(mut process)) = (self.ends.take(), self.process.take()) else {
            return;
        };
        // No plan comes any more: both processes end. Nothing can be done about a failure here,
        // and closing the socket has the same effect a little later.
        drop(ends.guard.finish_sending());
        drop(ends.jail.finish_sending());
        drop(process.wait());
        if self.pid_1.is_none() {
            drop(ends.jail_born());
        }
    }
}

fn spawn(jail: &Channel, guard: &Channel) -> io::Result<Child> {
    let inherited = [jail.as_fd(), guard.as_fd()];
    for fd in inherited {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    #[expect(clippy::disallowed_methods, reason = "this is the launcher")]
    let mut command = Command::new("/proc/self/exe");
    // Defence::HiddenPid1: environment::no_process_shows_the_callers_secrets.
    command.arg0("kvro-jail").arg(STAGE_ARGUMENT).env_clear();
    command.args(inherited.map(|fd| fd.as_raw_fd().to_string()));
    command.spawn()
}

/// Hands the plan over and collects what the stage, pid 1 and the agent's process report until
/// the jail is complete.
fn assemble(
    plan: &Plan,
    name: &str,
    pid_1: Pid1,
    channel: Channel,
) -> Result<Starting, LaunchError> {
    let receive = || channel.receive::<FromJail>().map_err(LaunchError::Spawn);
    // Before pid 1 forks, so that all that comes after it is in the group.
    let confined = confine(&plan.resources, name, pid_1.pid);
    let memory = sealed(plan).map_err(LaunchError::Spawn)?;
    // Whoever is gone by now has said why.
    drop(channel.send(&ToStage::Plan, &[memory.as_fd()]));
    let mut calls = None;
    loop {
        match receive()? {
            Some((FromJail::Listener, mut fds)) => calls = fds.pop(),
            Some((FromJail::Ready { dns_udp, dns_tcp, tap, decoys, terminal }, fds)) => {
                let mut fds = fds.into_iter();
                let mut take = |count: usize| fds.by_ref().take(count).collect::<Vec<_>>();
                let tcp = take(plan.door_ports.len());
                let tcp = plan.door_ports.iter().copied().zip(tcp).collect();
                let (dns_udp, dns_tcp) = (take(dns_udp.into()), take(dns_tcp.into()));
                let mut one = |is_there: bool| take(is_there.into()).pop();
                let (tap, decoys, terminal) = (one(tap), one(decoys), one(terminal));
                let door = Door { tcp, dns_udp, dns_tcp, tap: tap.ok_or(LaunchError::Silent)? };
                let calls = calls.ok_or(LaunchError::Silent)?;
                let jail = Jail::new(pid_1, channel, confined);
                return Ok(Starting { jail, door, calls, guard: None, decoys, terminal });
            }
            Some((FromJail::Failed(failed), _)) => return Err(failed.into()),
            _ => return Err(LaunchError::Silent),
        }
    }
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
