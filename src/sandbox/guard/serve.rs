//! The guard's process: serves the supervisor and follows the host until the supervisor is gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::stat::{Mode, umask};

use super::process::Guard;
use super::tree::Tree;
use super::wire::About;
use crate::collector;
use crate::creds;
use crate::identity;
use crate::plan::{Guarded, Identity};
use crate::stage::die_with_supervisor;
use crate::step::{During, Step, StepFailed};
use crate::sys;
use crate::wire::Channel;

/// Makes this process the guard of the jail whose pid 1 is `pid_1`: in its user and mount
/// namespaces, with the agent's user and the one capability that mounting takes.
pub(crate) fn enter(
    pid_1: libc::pid_t,
    identity: Identity,
    channel: &Channel,
) -> Result<(), StepFailed> {
    let enter = || -> io::Result<()> {
        let pidfd = sys::open_pidfd(pid_1)?;
        sys::join_user_and_mount_namespaces(pidfd.as_fd())?;
        identity::become_inside(identity)?;
        die_with_supervisor(channel)?;
        creds::keep_mounting()?;
        prctl::set_dumpable(false)?;
        umask(Mode::empty());
        Ok(())
    };
    enter().during(|| Step::EnterGuard)
}

/// The guards of all trees, ready to serve.
#[derive(Debug)]
pub(crate) struct Guards(Vec<Guard>);

impl Guards {
    /// `fds` are the descriptors of the trees, in the same order.
    pub(crate) fn new(guarded: &[Guarded], fds: Vec<OwnedFd>) -> io::Result<Self> {
        let mut fds = fds.into_iter();
        let guards = guarded.iter().enumerate().map(|(number, guarded)| {
            let tree = Tree::from_descriptors(guarded.root.clone(), &mut fds)?;
            Guard::new(number, tree, guarded)
        });
        Ok(Self(guards.collect::<io::Result<_>>()?))
    }

    /// Watches every guarded directory; what changed during the launch is looked at again.
    pub(crate) fn watch(&mut self) -> Result<(), StepFailed> {
        self.0.iter_mut().try_for_each(Guard::watch)
    }

    /// Serves until the supervisor is gone.
    pub(crate) fn serve(mut self, channel: &Channel) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|guard| guard.look_everywhere(channel))?;
        loop {
            let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let watches = self.0.iter().flat_map(Guard::watches);
            let mut waits: Vec<PollFd<'_>> =
                std::iter::once(channel.as_fd()).chain(watches).map(readable).collect();
            match poll(&mut waits, self.patience()) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            // What cannot be told is looked at.
            let woken: Vec<bool> = waits.iter().map(|wait| wait.any().unwrap_or(true)).collect();
            let Some((asked, changed)) = woken.split_first() else { continue };
            if *asked {
                let Some((About { tree, message }, fds)) = channel.receive()? else {
                    return collector::leave(self, |guards| {
                        guards.0.iter().flat_map(Guard::watches).collect()
                    });
                };
                let guard = self.0.get_mut(tree).ok_or(io::ErrorKind::InvalidData)?;
                guard.obey(message, fds, channel)?;
            }
            for (guard, changed) in self.0.iter_mut().zip(changed.chunks(2)) {
                guard.follow(changed.first() == Some(&true), channel)?;
            }
        }
    }

    fn patience(&self) -> PollTimeout {
        let Some(next) = self.0.iter().filter_map(Guard::due).min() else {
            return PollTimeout::NONE;
        };
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return PollTimeout::ZERO;
        }
        // Rounded up: who wakes too early waits again for nothing.
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    }
}
