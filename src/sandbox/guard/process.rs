//! The guard's process: serves the supervisor and follows the host until the supervisor is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::stat::{Mode, umask};

use super::far::FarWatch;
use super::host::{Changes, HostWatch};
use super::perform::Performed;
use super::secrets::Secrets;
use super::tree::Tree;
use super::wire::{At, FromGuard, ToGuard};
use crate::collector;
use crate::creds;
use crate::identity;
use crate::plan::{Guarded, Identity, ShownAs, Stretch};
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

/// The guard, ready to serve.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(super) tree: Tree,
    pub(super) host: HostWatch,
    pub(super) far: FarWatch,
    /// The guarded directories.
    pub(super) views: BTreeMap<PathBuf, Stretch>,
    /// Names that show a decoy, whatever is really there.
    pub(super) covered: BTreeSet<PathBuf>,
    /// What lies, or lay, at hidden names.
    pub(super) secrets: Secrets,
    /// Directories with a hidden name, where something new may be a secret on its way.
    pub(super) secretive: BTreeSet<PathBuf>,
    /// What the supervisor was asked about.
    pub(super) asked: BTreeSet<At>,
    /// When to ask about what is new.
    pub(super) held: BTreeMap<At, Instant>,
}

impl Guard {
    pub(crate) fn new(tree: Tree, guarded: &Guarded) -> io::Result<Self> {
        let views = guarded.views.iter().map(|view| (view.path.clone(), view.stretch)).collect();
        let covered = guarded.views.iter().flat_map(|view| {
            let covered = view.names.iter().filter(|shown| shown.shown == ShownAs::Covered);
            covered.map(|shown| view.path.join(&shown.name))
        });
        let covered: BTreeSet<PathBuf> = covered.collect();
        let secretive = covered.iter().filter_map(|path| path.parent()).map(Path::to_owned);
        let secretive = secretive.collect();
        let mut far = FarWatch::new(guarded.suspects.clone())?;
        for view in &guarded.views {
            let shown = view.names.iter().filter(|shown| shown.shown == ShownAs::Open);
            shown.for_each(|shown| far.add(view.path.join(&shown.name)));
        }
        Ok(Self {
            tree,
            host: HostWatch::new()?,
            far,
            views,
            covered,
            secrets: Secrets::default(),
            secretive,
            asked: BTreeSet::new(),
            held: BTreeMap::new(),
        })
    }

    /// Watches every guarded directory; what changed during the launch is looked at again.
    pub(crate) fn watch(&mut self) -> Result<(), StepFailed> {
        let dirs: Vec<PathBuf> = self.views.keys().cloned().collect();
        for dir in &dirs {
            let mut watch = || -> io::Result<()> {
                let real = self.tree.real_dir(dir)?;
                self.host.watch(dir, &real).map(drop)
            };
            watch().during(|| Step::Guard(dir.clone()))?;
        }
        Ok(())
    }

    /// Serves until the supervisor is gone.
    pub(crate) fn serve(mut self, channel: &Channel) -> io::Result<()> {
        self.look_everywhere(channel)?;
        loop {
            let mut waits = [
                PollFd::new(channel.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.host.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.far.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut waits, self.patience()) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            let (asked, changed) = (waits[0].any().unwrap_or(true), waits[1].any().unwrap_or(true));
            if asked {
                match channel.receive::<ToGuard>()? {
                    None => {
                        return collector::leave(self, |guard| {
                            vec![guard.host.as_fd(), guard.far.as_fd()]
                        });
                    }
                    Some((request, fds)) => self.obey(request, fds, channel)?,
                }
            }
            if changed {
                match self.host.changes()? {
                    Changes::Unknown => self.look_everywhere(channel)?,
                    Changes::Names(names) => {
                        for (dir, name) in names {
                            self.look(At { dir, name }, channel)?;
                        }
                    }
                }
            }
            self.look_far(channel)?;
            self.ask_what_is_due(channel)?;
        }
    }

    fn patience(&self) -> PollTimeout {
        if self.far.is_behind() {
            return PollTimeout::ZERO;
        }
        let Some(next) = self.held.values().min() else { return PollTimeout::NONE };
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    fn obey(&mut self, request: ToGuard, fds: Vec<OwnedFd>, channel: &Channel) -> io::Result<()> {
        if let ToGuard::Show { at, standing, views } = request {
            return self.show_judged(&at, standing, &views, channel);
        }
        let answer = match self.perform(request, fds, channel) {
            Ok(Performed::Done) => FromGuard::Done,
            Ok(Performed::IsThere) => FromGuard::IsThere,
            Ok(Performed::Opened(file)) => {
                return channel.send(&FromGuard::Opened, &[file.as_fd()]);
            }
            Err(error) => FromGuard::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) },
        };
        channel.send(&answer, &[])
    }
}
