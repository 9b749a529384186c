//! Sources of mounts, opened as detached trees.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::identity::OwnerMaps;
use crate::plan::{Owner, Plan};
use crate::step::{During, Step, StepFailed};
use crate::sys;

/// The trees of a plan's mounts, in the plan's order.
#[derive(Debug)]
pub(crate) struct Prepared {
    trees: Vec<Sources>,
}

/// What one mount of the plan is made from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The source of a bind, or what an overlay lies over.
    pub(crate) tree: Option<OwnedFd>,
    /// Where an overlay's changes go.
    pub(crate) layer: Option<OwnedFd>,
}

impl Prepared {
    /// Opens what needs the privileges of the host's root: trees with mapped owners.
    pub(crate) fn by_host_root(plan: &Plan) -> Result<Self, StepFailed> {
        let mut maps = OwnerMaps::new(plan.identity.kernel);
        let mut trees: Vec<Sources> = Vec::new();
        for mount in &plan.mounts {
            let mut sources = Sources::default();
            if let Some(origin) = mount.origin()
                && let Owner::Mapped(owner) = origin.owner
            {
                let mut open = |path: &Path| {
                    maps.tree_of(owner, path).during(|| Step::MapOwners(path.to_owned()))
                };
                sources.tree = Some(open(origin.tree)?);
                sources.layer = origin.layer.map(open).transpose()?;
            }
            trees.push(sources);
        }
        Ok(Self { trees })
    }

    /// Opens the rest, from inside the jail's own mount namespace.
    pub(crate) fn by_jail(mut self, plan: &Plan) -> Result<Vec<Sources>, StepFailed> {
        for (mount, sources) in plan.mounts.iter().zip(&mut self.trees) {
            if let Some(origin) = mount.origin()
                && origin.owner == Owner::AsIs
            {
                let open =
                    |path: &Path| sys::clone_tree(path).during(|| Step::OpenTree(path.to_owned()));
                sources.tree = Some(open(origin.tree)?);
                sources.layer = origin.layer.map(open).transpose()?;
            }
        }
        Ok(self.trees)
    }
}
