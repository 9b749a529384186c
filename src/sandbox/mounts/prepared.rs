//! Sources of mounts, opened as detached trees.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::identity::OwnerMaps;
use crate::plan::{Ids, Mount, Origin, Owner, Plan};
use crate::step::{During, Step, StepFailed};
use crate::sys;
use crate::wire::{Channel, ToPid1};

/// What the host's root opened: the trees of the plan's mounts with a mapped owner, in the plan's
/// order.
#[derive(Debug)]
pub(crate) struct Prepared(Vec<Sources>);

/// What one mount of the plan is made from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The source of a bind, what an overlay lies over, or the file that one of ours begins with.
    pub(crate) tree: Option<OwnedFd>,
    /// Where an overlay's changes go.
    pub(crate) layer: Option<OwnedFd>,
}

impl Prepared {
    /// Opens what needs the privileges of the host's root: trees with mapped owners.
    pub(crate) fn by_host_root(plan: &Plan) -> Result<Self, StepFailed> {
        let mut maps = OwnerMaps::new(plan.identity.kernel);
        let mapped = plan.mounts.iter().filter_map(mapped);
        mapped
            .map(|(origin, owner)| {
                Sources::open(origin, |path| {
                    maps.tree_of(owner, path).during(|| Step::MapOwners(path.to_owned()))
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Gives them to pid 1, a message for each.
    pub(crate) fn send(&self, to_pid_1: &Channel) -> io::Result<()> {
        self.0.iter().try_for_each(|sources| {
            let trees: Vec<BorrowedFd<'_>> =
                sources.tree.iter().chain(&sources.layer).map(AsFd::as_fd).collect();
            to_pid_1.send(&ToPid1::Trees, &trees)
        })
    }
}

impl Sources {
    fn open(
        origin: Origin<'_>,
        mut open: impl FnMut(&Path) -> Result<OwnedFd, StepFailed>,
    ) -> Result<Self, StepFailed> {
        let tree = Some(open(origin.tree)?);
        Ok(Self { tree, layer: origin.layer.map(open).transpose()? })
    }

    fn receive(from_stage: &Channel) -> io::Result<Self> {
        match from_stage.receive()? {
            Some((ToPid1::Trees, trees)) => {
                let mut trees = trees.into_iter();
                Ok(Self { tree: trees.next(), layer: trees.next() })
            }
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Every source of the plan, in its order: what the stage hands over, and the rest as the jail opens
/// it from inside its own mount namespace.
pub(crate) fn sources(plan: &Plan, from_stage: &Channel) -> Result<Vec<Sources>, StepFailed> {
    plan.mounts
        .iter()
        .map(|mount| match (mapped(mount), mount.origin()) {
            (Some(_), _) => Sources::receive(from_stage).during(|| Step::Report),
            (None, Some(origin)) => Sources::open(origin, |path| {
                let opened = if matches!(mount, Mount::File { .. }) {
                    File::open(path).map(OwnedFd::from)
                } else {
                    sys::clone_tree(path)
                };
                opened.during(|| Step::OpenTree(path.to_owned()))
            }),
            (None, None) => Ok(Sources::default()),
        })
        .collect()
}

fn mapped(mount: &Mount) -> Option<(Origin<'_>, Ids)> {
    let origin = mount.origin()?;
    match origin.owner {
        Owner::Mapped(owner) => Some((origin, owner)),
        Owner::AsIs => None,
    }
}
