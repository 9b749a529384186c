//! Covers over names: decoys over what is hidden, read-only views over what is protected.
//!
//! A mask holds against the agent, and against a rename of the mask itself, but not against the
//! host: a file that the host renames over a masked name takes the mask off (measured). It is the
//! first layer of the file side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use super::root::{Kind, Root, kind_of};
use crate::lookup::is_gone;
use crate::plan::{Mask, MaskKind};
use crate::step::{During, Step, StepFailed};
use crate::sys::{self, MountAttributes};

/// Where the decoys' filesystem is attached while names are covered.
const WORKBENCH: &str = "/.kvro/decoys";

/// Covers the names of `masks`; returns the directory of decoys when anything is hidden.
///
/// A name that is gone by now needs no cover.
pub(super) fn cover(root: &Root, masks: &[Mask]) -> Result<Option<OwnedFd>, StepFailed> {
    let hides = masks.iter().any(|mask| matches!(mask.kind, MaskKind::Hidden { .. }));
    let decoys = if hides { Some(Decoys::new(root)?) } else { None };
    for (number, mask) in masks.iter().enumerate() {
        let step = || Step::Mask(mask.target.clone());
        let place = match root.existing(&mask.target) {
            Err(error) if is_gone(&error) => continue,
            found => found.during(step)?,
        };
        match (&mask.kind, &decoys) {
            (MaskKind::Hidden { text }, Some(decoys)) => {
                decoys.cover(number, text, &place).during(step)?;
            }
            (MaskKind::Hidden { .. }, None) => {}
            (MaskKind::Protected, _) => protect(&place).during(step)?,
        }
    }
    let Some(decoys) = decoys else {
        return Ok(None);
    };
    umount2("/tmp/.kvro/decoys", MntFlags::MNT_DETACH)
        .during(|| Step::Make(PathBuf::from(WORKBENCH)))?;
    Ok(Some(decoys.tree))
}

/// A read-only copy of the mount over itself.
fn protect(place: &OwnedFd) -> io::Result<()> {
    // Defence::ProtectedMask: files::agent_cannot_rename_a_protected_file.
    let tree = sys::open_tree(place.as_fd())?;
    sys::set_attributes(tree.as_fd(), MountAttributes::READ_ONLY)?;
    sys::attach(tree.as_fd(), place.as_fd())
}

/// A small filesystem of decoys, one for each hidden name, so that each can be told apart when it
/// is opened.
struct Decoys {
    tree: OwnedFd,
    root: Root,
}

impl Decoys {
    fn new(root: &Root) -> Result<Self, StepFailed> {
        let at = Path::new(WORKBENCH);
        let make = || {
            let options = [(c"size", c"64m"), (c"mode", c"0755")];
            let tree = sys::new_filesystem(c"tmpfs", &options, MountAttributes::READ_WRITE)?;
            // Only an attached mount can be bound from before Linux 6.15.
            sys::attach(tree.as_fd(), root.directory(at)?.as_fd())?;
            Ok::<_, io::Error>(Self { root: Root::new(tree.try_clone()?), tree })
        };
        make().during(|| Step::Make(at.to_owned()))
    }

    fn cover(&self, number: usize, text: &str, place: &OwnedFd) -> io::Result<()> {
        // Defence::HiddenMask: files::agent_cannot_unlink_a_hidden_file.
        let name = Path::new("/").join(number.to_string());
        match kind_of(place.as_fd())? {
            Kind::Directory => drop(self.root.directory(&name)?),
            Kind::File => self.root.write(&name, None, text.as_bytes())?,
        }
        let tree = sys::open_tree(self.root.existing(&name)?.as_fd())?;
        let attributes = MountAttributes { access: sys::Access::ReadOnly, ..MountAttributes::DATA };
        sys::set_attributes(tree.as_fd(), attributes)?;
        sys::attach(tree.as_fd(), place.as_fd())
    }
}
