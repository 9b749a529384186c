//! Where a path really leads.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Follows every link of `path` and answers the path of what is there, which must exist.
///
/// The kernel walks once and names what it arrived at, so there is no moment between a check of one
/// component and the use of the next.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    let flags = (OFlag::O_PATH | OFlag::O_CLOEXEC).bits();
    let opened = File::options().read(true).custom_flags(flags).open(path)?;
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}
