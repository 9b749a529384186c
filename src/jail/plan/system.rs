//! The parts of the machine that every jail shows.

use std::fs;
use std::path::{Path, PathBuf};

use kvro_sandbox::{Mount, Owner, Stretch};

use crate::workspace::SYSTEM_TREES;

/// Read-only pieces of `/sys` that runtimes ask for the machine's shape. The rest is not there.
const SYS: [&str; 4] = [
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/fs/cgroup/cgroup.controllers",
];

/// Where NixOS links its programs from.
const OTHER_TREES: [&str; 2] = ["/run/current-system", "/run/opengl-driver"];

const MIB: u64 = 1 << 20;

/// Sizes of what lies in memory; a jail without a memory ceiling must not fill the machine's.
const TMP: u64 = 4096 * MIB;
const RUN: u64 = 64 * MIB;

/// The system trees, as the host has them: links stay links.
pub(super) fn trees() -> Vec<Mount> {
    let trees = SYSTEM_TREES.iter().chain(&OTHER_TREES).chain(&SYS);
    trees.filter_map(|tree| tree_at(Path::new(tree))).collect()
}

fn tree_at(path: &Path) -> Option<Mount> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if metadata.is_symlink() && path.parent() == Some(Path::new("/")) {
        let to = fs::read_link(path).ok()?;
        return Some(Mount::Symlink { target: path.to_owned(), to });
    }
    Some(read_only(path))
}

/// The same path inside, read-only.
pub(super) fn read_only(path: &Path) -> Mount {
    let (source, target) = (path.to_owned(), path.to_owned());
    Mount::Bind { source, target, stretch: Stretch::ReadOnly, owner: Owner::AsIs }
}

/// Places to write that end with the run.
pub(super) fn scratch() -> Vec<Mount> {
    let tmpfs = |target: &str, bytes, mode| Mount::Tmpfs { target: target.into(), bytes, mode };
    let link = |target: &str, to: &str| Mount::Symlink { target: target.into(), to: to.into() };
    vec![
        tmpfs("/tmp", TMP, 0o1777),
        tmpfs("/run", RUN, 0o755),
        tmpfs("/var/tmp", TMP, 0o1777),
        link("/var/run", "/run"),
        Mount::Directory { target: PathBuf::from("/var/lib") },
        Mount::Directory { target: PathBuf::from("/var/cache") },
        Mount::Devices,
        Mount::Proc,
    ]
}
