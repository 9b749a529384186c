//! Makes the root from the plan and enters it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, fchdir};

use super::devices;
use super::mask;
use super::prepared::Sources;
use super::proc;
use super::root::{Root, kind_of};
use super::view;
use crate::guard::Tree;
use crate::plan::{Mount, Plan, Stretch};
use crate::step::{During, Step, StepFailed};
use crate::sys::{self, MountAttributes};

/// Where the new root is attached until it is the root. Any directory would do: the mount
/// namespace is the jail's own.
const BASE: &str = "/tmp";

/// Where pieces wait while they are joined; gone before the agent exists.
const WORKSHOP: &str = "/.kvro";
const WORKBENCHES: [&str; 3] = ["/.kvro/lower", "/.kvro/layer", "/.kvro/decoys"];

/// What the supervisor gets of a made root.
#[derive(Debug)]
pub(crate) struct Built {
    /// The plan's guarded trees.
    pub(crate) trees: Vec<Tree>,
    /// The directory of decoys, one file a hidden name, named by its place in `plan.masks`.
    pub(crate) decoys: Option<OwnedFd>,
}

/// Stops mounts of the host from appearing in the jail. First of all, before a tree is opened.
pub(crate) fn detach_from_host() -> io::Result<()> {
    let none = None::<&Path>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    Ok(())
}

/// Makes the root and enters it.
pub(crate) fn build(plan: &Plan, sources: Vec<Sources>) -> Result<Built, StepFailed> {
    let root = new_root().during(|| Step::NewRoot)?;
    for (mount, sources) in plan.mounts.iter().zip(sources) {
        add(&root, mount, sources)?;
    }
    let lay = |guarded| view::lay(&root, guarded);
    let trees = plan.guards.iter().map(lay).collect::<Result<Vec<_>, _>>()?;
    let decoys = mask::cover(&root, &plan.masks)?;
    trees.iter().try_for_each(view::close).during(|| Step::NewRoot)?;
    close_workshop(&root).during(|| Step::NewRoot)?;
    enter(&root).during(|| Step::EnterRoot)?;
    Ok(Built { trees, decoys })
}

fn new_root() -> io::Result<Root> {
    let options = [(c"size", c"16m"), (c"mode", c"0755")];
    let tree = sys::new_filesystem(c"tmpfs", &options, MountAttributes::READ_WRITE)?;
    let base = sys::open_path(Path::new(BASE))?;
    sys::attach(tree.as_fd(), base.as_fd())?;
    Ok(Root::new(tree))
}

fn close_workshop(root: &Root) -> io::Result<()> {
    WORKBENCHES.iter().chain([&WORKSHOP]).try_for_each(|path| root.forget(Path::new(path)))
}

fn add(root: &Root, mount: &Mount, sources: Sources) -> Result<(), StepFailed> {
    match mount {
        Mount::Bind { target, stretch, .. } => {
            let tree = sources.tree.ok_or(missing(target))?;
            bind(root, &tree, target, attributes(*stretch)).during(|| Step::Mount(target.clone()))
        }
        Mount::Overlay { target, .. } => {
            let (Some(lower), Some(layer)) = (sources.tree, sources.layer) else {
                return Err(missing(target));
            };
            overlay(root, &lower, &layer, target).during(|| Step::Overlay(target.clone()))
        }
        Mount::Tmpfs { target, bytes, mode } => {
            tmpfs(root, target, *bytes, *mode).during(|| Step::Mount(target.clone()))
        }
        Mount::Devices => devices::add(root),
        Mount::Proc => proc::add(root).during(|| Step::MountProc),
        Mount::Directory { target } => {
            root.directory(target).map(drop).during(|| Step::Make(target.clone()))
        }
        Mount::File { target, content } => {
            root.write(target, sources.tree, &content.own).during(|| Step::Make(target.clone()))
        }
        Mount::Alias { of, target } => {
            alias(root, of, target).during(|| Step::Mount(target.clone()))
        }
        Mount::Symlink { target, to } => {
            root.symlink(target, to).during(|| Step::Make(target.clone()))
        }
    }
}

fn missing(target: &Path) -> StepFailed {
    StepFailed { step: Step::OpenTree(target.to_owned()), errno: libc::ENOENT }
}

/// The attributes of a mount that stretches so far.
pub(crate) fn attributes(stretch: Stretch) -> MountAttributes {
    match stretch {
        Stretch::ReadOnly => MountAttributes::READ_ONLY,
        Stretch::ReadWrite => MountAttributes::READ_WRITE,
    }
}

fn alias(root: &Root, of: &Path, target: &Path) -> io::Result<()> {
    let tree = sys::open_tree(root.existing(of)?.as_fd())?;
    bind(root, &tree, target, MountAttributes::READ_ONLY)
}

fn bind(root: &Root, tree: &OwnedFd, target: &Path, attr: MountAttributes) -> io::Result<()> {
    sys::set_attributes(tree.as_fd(), attr)?;
    let place = root.place(target, kind_of(tree.as_fd())?)?;
    sys::attach(tree.as_fd(), place.as_fd())
}

pub(super) fn tmpfs(root: &Root, target: &Path, bytes: u64, mode: u32) -> io::Result<()> {
    let tree = tmpfs_tree(bytes, mode)?;
    let place = root.directory(target)?;
    sys::attach(tree.as_fd(), place.as_fd())
}

/// An empty filesystem in memory, detached.
pub(super) fn tmpfs_tree(bytes: u64, mode: u32) -> io::Result<OwnedFd> {
    let (size, mode) = (number(bytes.to_string())?, number(format!("{mode:o}"))?);
    let options = [(c"size", size.as_c_str()), (c"mode", mode.as_c_str())];
    sys::new_filesystem(c"tmpfs", &options, MountAttributes::READ_WRITE)
}

fn number(digits: String) -> io::Result<CString> {
    CString::new(digits).map_err(io::Error::from)
}

/// Lays `layer` over `lower`. An overlay takes its layers by path, so both are attached in the
/// workshop for as long as it takes; the overlay keeps mounts of its own.
fn overlay(root: &Root, lower: &OwnedFd, layer: &OwnedFd, target: &Path) -> io::Result<()> {
    sys::set_attributes(lower.as_fd(), MountAttributes::READ_ONLY)?;
    sys::set_attributes(layer.as_fd(), MountAttributes::READ_WRITE)?;
    sys::attach(lower.as_fd(), root.directory(Path::new("/.kvro/lower"))?.as_fd())?;
    sys::attach(layer.as_fd(), root.directory(Path::new("/.kvro/layer"))?.as_fd())?;
    let options = [
        (c"lowerdir", c"/tmp/.kvro/lower"),
        (c"upperdir", c"/tmp/.kvro/layer/upper"),
        (c"workdir", c"/tmp/.kvro/layer/work"),
        (c"userxattr", c""),
        // Without it the end of a jail waits until the layer's whole filesystem is synced.
        (c"volatile", c""),
    ];
    let tree = sys::new_filesystem(c"overlay", &options, MountAttributes::READ_WRITE)?;
    umount2("/tmp/.kvro/lower", DETACH)?;
    umount2("/tmp/.kvro/layer", DETACH)?;
    let place = root.directory(target)?;
    sys::attach(tree.as_fd(), place.as_fd())
}

const DETACH: MntFlags = MntFlags::MNT_DETACH;

/// Makes the new root the root and leaves nothing of the old one.
fn enter(root: &Root) -> io::Result<()> {
    // Defence::Root: files::the_home_of_the_host_is_not_there.
    sys::set_own_attributes(root.as_fd(), MountAttributes::READ_ONLY)?;
    fchdir(root)?;
    sys::pivot_here()?;
    umount2(".", DETACH)?;
    chdir("/")?;
    Ok(())
}
