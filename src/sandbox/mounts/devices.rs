//! `/dev`: the usual harmless nodes, a terminal filesystem of the jail's own, shared memory.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::build::tmpfs;
use super::root::Root;
use crate::step::{During, Step, StepFailed};
use crate::sys::{self, MountAttributes};

/// Nodes without side effects; an unprivileged user namespace cannot make its own, so they are
/// bound from the host.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Browsers need more than the 64 MB that containers often give.
const SHARED_MEMORY: u64 = 1 << 30;

pub(super) fn add(root: &Root) -> Result<(), StepFailed> {
    for node in NODES {
        let path = Path::new("/dev").join(node);
        let tree = sys::clone_tree(&path).during(|| Step::OpenTree(path.clone()))?;
        let bind = || {
            sys::set_attributes(tree.as_fd(), MountAttributes::DEVICE)?;
            sys::attach(tree.as_fd(), root.file(&path)?.as_fd())
        };
        bind().during(|| Step::Mount(path.clone()))?;
    }
    for (name, to) in LINKS {
        let path = Path::new("/dev").join(name);
        root.symlink(&path, Path::new(to)).during(|| Step::Make(path.clone()))?;
    }
    let pts = PathBuf::from("/dev/pts");
    let terminals = || {
        // Each mount of devpts is an instance of its own since Linux 4.7.
        let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
        let attributes =
            MountAttributes { access: sys::Access::ReadWrite, ..MountAttributes::DEVICE };
        let tree = sys::new_filesystem(c"devpts", &options, attributes)?;
        sys::attach(tree.as_fd(), root.directory(&pts)?.as_fd())
    };
    terminals().during(|| Step::Mount(pts.clone()))?;
    let shm = PathBuf::from("/dev/shm");
    tmpfs(root, &shm, SHARED_MEMORY, 0o1777).during(|| Step::Mount(shm.clone()))
}
