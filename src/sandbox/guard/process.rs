//! What the guard knows of one tree.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::far::{FarWatch, Looked};
use super::held::Held;
use super::host::{Changes, HostWatch};
use super::perform::Performed;
use super::secrets::Secrets;
use super::tree::Tree;
use super::wire::{About, At, FromGuard, ToGuard};
use crate::plan::{Guarded, ShownAs, Stretch};
use crate::step::{During, Step, StepFailed};
use crate::wire::Channel;

/// The guard of one tree.
#[derive(Debug)]
pub(super) struct Guard {
    /// The tree's place in the plan.
    number: usize,
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
    pub(super) held: Held,
}

impl Guard {
    pub(super) fn new(number: usize, tree: Tree, guarded: &Guarded) -> io::Result<Self> {
        let views = guarded.views.iter().map(|view| (view.path.clone(), view.stretch)).collect();
        let covered = guarded.views.iter().flat_map(|view| {
            let covered = view.names.iter().filter(|shown| shown.shown == ShownAs::Covered);
            covered.map(|shown| view.path.join(&shown.name))
        });
        let covered: BTreeSet<PathBuf> = covered.collect();
        let secretive = covered.iter().filter_map(|path| path.parent()).map(Path::to_owned);
        let secretive = secretive.collect();
        let mut far = FarWatch::new(guarded)?;
        for view in &guarded.views {
            let shown = view.names.iter().filter(|shown| shown.shown == ShownAs::Open);
            shown.for_each(|shown| far.add(view.path.join(&shown.name), Looked::Before));
        }
        Ok(Self {
            number,
            tree,
            host: HostWatch::new()?,
            far,
            views,
            covered,
            secrets: Secrets::default(),
            secretive,
            asked: BTreeSet::new(),
            held: Held::default(),
        })
    }

    /// Watches every guarded directory; what changed during the launch is looked at again.
    pub(super) fn watch(&mut self) -> Result<(), StepFailed> {
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

    /// The descriptors that tell of changes on the host.
    pub(super) fn watches(&self) -> [BorrowedFd<'_>; 2] {
        [self.host.as_fd(), self.far.as_fd()]
    }

    /// Looks at what the host changed; `has_changed` says whether its watch on names told so.
    pub(super) fn follow(&mut self, has_changed: bool, channel: &Channel) -> io::Result<()> {
        if has_changed {
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
        self.ask_what_is_due(channel)
    }

    /// When there is something to do that no watch tells of.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.far.is_behind() {
            return Some(Instant::now());
        }
        // What is due and cannot be asked yet is asked when an answer comes.
        self.held.next().filter(|_| self.may_ask())
    }

    pub(super) fn tell(
        &self,
        message: FromGuard,
        fds: &[BorrowedFd<'_>],
        channel: &Channel,
    ) -> io::Result<()> {
        channel.send(&About { tree: self.number, message }, fds)
    }

    pub(super) fn obey(
        &mut self,
        request: ToGuard,
        fds: Vec<OwnedFd>,
        channel: &Channel,
    ) -> io::Result<()> {
        if let ToGuard::Show { at, standing, views } = request {
            return self.show_judged(&at, standing, &views, channel);
        }
        let answer = match self.perform(request, fds, channel) {
            Ok(Performed::Done) => FromGuard::Done,
            Ok(Performed::IsThere) => FromGuard::IsThere,
            Ok(Performed::Opened(file)) => {
                return self.tell(FromGuard::Opened, &[file.as_fd()], channel);
            }
            Err(error) => FromGuard::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) },
        };
        self.tell(answer, &[], channel)
    }
}
