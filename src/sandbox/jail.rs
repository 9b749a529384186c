//! A jail that is made: what it tells, and what can be asked of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use crate::launch::LaunchError;
use crate::limits::{Cgroup, Confinement};
use crate::sys;
use crate::wire::{Channel, FromJail, ToJail};

/// What the jail tells while it lives.
#[derive(Debug)]
pub enum JailEvent {
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

/// A jail, from outside. Dropping it kills every process of it.
#[derive(Debug)]
pub struct Jail {
    // In the order in which they have to go: the group after its last process.
    pid_1: Pid1,
    channel: Channel,
    confinement: Confinement,
    _cgroup: Option<Cgroup>,
}

impl Jail {
    pub(crate) fn new(
        pid_1: Pid1,
        channel: Channel,
        (confinement, cgroup): (Confinement, Option<Cgroup>),
    ) -> Self {
        Self { pid_1, channel, confinement, _cgroup: cgroup }
    }

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
        let Some((message, _)) = self.channel.receive::<FromJail>()? else {
            return Ok(None);
        };
        let event = match message {
            FromJail::Stopped { signal } => JailEvent::Stopped(signal),
            FromJail::Exited { code } => JailEvent::Ended(Ended::Exited(code)),
            FromJail::Signaled { signal } => JailEvent::Ended(Ended::Signaled(signal)),
            FromJail::Failed(failed) => JailEvent::NotRun(failed.into()),
            FromJail::Born { .. } | FromJail::Listener | FromJail::Ready { .. } => {
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
        self.pid_1.kill()
    }

    /// Readable when every process of the jail is dead: the kernel ends the others before pid 1.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pid_1.as_fd()
    }

    /// Waits until nothing of the jail is alive.
    pub fn wait(&self) -> io::Result<()> {
        self.pid_1.wait()
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

/// The jail's pid 1, a child of this process. Dropping it kills the jail and waits for its end.
#[derive(Debug)]
pub(crate) struct Pid1 {
    pub(crate) pid: i32,
    pidfd: OwnedFd,
}

impl Pid1 {
    /// Takes hold of the child `pid`.
    pub(crate) fn adopt(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, pidfd: sys::open_pidfd(pid)? })
    }

    fn kill(&self) -> io::Result<()> {
        match sys::signal_pidfd(self.pidfd.as_fd(), libc::SIGKILL) {
            // It is dead already.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    fn wait(&self) -> io::Result<()> {
        loop {
            match waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED) {
                Err(Errno::EINTR) => {}
                // Somebody waited already.
                Ok(_) | Err(Errno::ECHILD) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
        }
    }
}

impl AsFd for Pid1 {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Pid1 {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; closing the socket ends the jail as well.
        drop(self.kill());
        drop(self.wait());
    }
}
