//! Sources of mounts, opened as detached trees.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::identity::{self, OwnerMaps};
use crate::plan::{Mount, Owner, Plan};
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
        let mut trees: Vec<Sources> = Vec::new();
        trees.resize_with(plan.mounts.len(), Sources::default);
        if !identity::owners_in(plan) {
            return Ok(Self { trees });
        }
        let mut maps = OwnerMaps::new(plan.identity.kernel);
        let mut mapped = |path: &PathBuf, owner| {
            identity::mapped_tree(&mut maps, path, owner).during(|| Step::MapOwners(path.clone()))
        };
        for (mount, sources) in plan.mounts.iter().zip(&mut trees) {
            match mount {
                Mount::Bind { source, owner: Owner::Mapped(owner), .. } => {
                    sources.tree = Some(mapped(source, *owner)?);
                }
                Mount::Overlay { lower, layer, owner: Owner::Mapped(owner), .. } => {
                    sources.tree = Some(mapped(lower, *owner)?);
                    sources.layer = Some(mapped(layer, *owner)?);
                }
                Mount::Bind { .. }
                | Mount::Overlay { .. }
                | Mount::Tmpfs { .. }
                | Mount::Devices
                | Mount::Proc
                | Mount::Directory { .. }
                | Mount::File { .. }
                | Mount::Alias { .. }
                | Mount::Symlink { .. } => {}
            }
        }
        Ok(Self { trees })
    }

    /// Opens the rest, from inside the jail's own mount namespace.
    pub(crate) fn by_jail(mut self, plan: &Plan) -> Result<Vec<Sources>, StepFailed> {
        for (mount, sources) in plan.mounts.iter().zip(&mut self.trees) {
            match mount {
                Mount::Bind { source, owner: Owner::AsIs, .. } => {
                    sources.tree = Some(open(source)?);
                }
                Mount::Overlay { lower, layer, owner: Owner::AsIs, .. } => {
                    sources.tree = Some(open(lower)?);
                    sources.layer = Some(open(layer)?);
                }
                Mount::Bind { .. }
                | Mount::Overlay { .. }
                | Mount::Tmpfs { .. }
                | Mount::Devices
                | Mount::Proc
                | Mount::Directory { .. }
                | Mount::File { .. }
                | Mount::Alias { .. }
                | Mount::Symlink { .. } => {}
            }
        }
        Ok(self.trees)
    }
}

fn open(path: &Path) -> Result<OwnedFd, StepFailed> {
    sys::clone_tree(path).during(|| Step::OpenTree(path.to_owned()))
}
