//! Lays the view over the guarded tree; see [`crate::guard`] for what it is for.

use std::io;
use std::os::fd::AsFd;

use super::build::tmpfs_tree;
use super::root::Root;
use crate::guard::Tree;
use crate::plan::{Guarded, ShownAs, Stretch, View};
use crate::step::{During, Step, StepFailed};
use crate::sys::{self, MountAttributes};

/// Covers the tree, which is mounted already, with a view that shows what the plan names.
pub(super) fn lay(root: &Root, guarded: &Guarded) -> Result<Tree, StepFailed> {
    let tree = cover(root, guarded).during(|| Step::Guard(guarded.root.clone()))?;
    for view in &guarded.views {
        fill(&tree, view).during(|| Step::Guard(guarded.root.join(&view.path)))?;
    }
    Ok(tree)
}

/// The view is the agent's to read alone. The copy of it that places are made in is not attached.
pub(super) fn close(tree: &Tree) -> io::Result<()> {
    sys::set_own_attributes(tree.view().as_fd(), MountAttributes::READ_ONLY)
}

fn cover(root: &Root, guarded: &Guarded) -> io::Result<Tree> {
    let real = root.existing(&guarded.root)?;
    let mode = nix::sys::stat::fstat(&real)?.st_mode & 0o7777;
    let view = tmpfs_tree(VIEW_BYTES, mode | 0o700)?;
    sys::attach(view.as_fd(), real.as_fd())?;
    // Only an attached mount can be copied before Linux 6.15.
    let places = sys::open_tree(view.as_fd())?;
    Ok(Tree::new(guarded.root.clone(), real, view, places))
}

/// Room for the places of a few hundred thousand names.
const VIEW_BYTES: u64 = 256 << 20;

// Defence::ProtectedMask: files::agent_cannot_rename_a_protected_file.
fn fill(tree: &Tree, view: &View) -> io::Result<()> {
    tree.make_view(&view.path)?;
    for shown in &view.names {
        let name = shown.name.as_os_str();
        // What is gone by now is not shown; what is new is looked at when the guard starts.
        let Some(real) = tree.real(&view.path, name)? else { continue };
        match shown.shown {
            ShownAs::Open => tree.show(&view.path, name, &real, view.stretch)?,
            ShownAs::Protected => tree.show(&view.path, name, &real, Stretch::ReadOnly)?,
            ShownAs::Covered => tree.reserve(&view.path, name, &real)?,
        }
    }
    Ok(())
}
