//! `/proc`: of the jail's own processes, with what configures the kernel read-only.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::root::Root;
use crate::sys::{self, MountAttributes};

/// What configures the kernel or the machine: shown, never writable.
const READ_ONLY: [&str; 7] = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "pressure"];

/// What tells of the host beyond the jail: shown empty.
const EMPTY: [&str; 6] = ["kcore", "keys", "key-users", "timer_list", "kmsg", "sched_debug"];

pub(super) fn add(root: &Root) -> io::Result<()> {
    let attributes = MountAttributes::DATA;
    let tree = sys::new_filesystem(c"proc", &[], attributes)?;
    sys::attach(tree.as_fd(), root.directory(Path::new("/proc"))?.as_fd())?;
    // Defence::ReadOnlyKernelFiles: files::no_setting_of_the_kernel_opens_for_writing.
    for name in READ_ONLY {
        cover(root, name, |place| sys::open_tree(place.as_fd()))?;
    }
    // Defence::Keyring: privileges::agent_does_not_see_the_callers_keys.
    for name in EMPTY {
        cover(root, name, |_| sys::clone_tree(Path::new("/dev/null")))?;
    }
    Ok(())
}

/// Covers `/proc/NAME` read-only; kernels without that file have nothing to cover.
fn cover(
    root: &Root,
    name: &str,
    source: impl FnOnce(&std::os::fd::OwnedFd) -> io::Result<std::os::fd::OwnedFd>,
) -> io::Result<()> {
    let place = match root.existing(&Path::new("/proc").join(name)) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
        found => found?,
    };
    let tree = source(&place)?;
    let attributes = MountAttributes { access: sys::Access::ReadOnly, ..MountAttributes::DEVICE };
    sys::set_attributes(tree.as_fd(), attributes)?;
    sys::attach(tree.as_fd(), place.as_fd())
}
