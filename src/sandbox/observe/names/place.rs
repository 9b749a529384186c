//! Where a path leads, as the jail sees it.
//!
//! The string is read once, and the directory it leads to is resolved in the jail's own root: what
//! the caller changes afterwards changes nothing that is decided here. What cannot be resolved is
//! left to the kernel, which finds the view read-only.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2, readlink};
use nix::sys::stat::{FileStat, Mode, fstatat};

/// The longest path that the kernel takes, its end included.
const PATH_MAX: usize = 4096;

/// A name in a directory of the jail.
#[derive(Debug)]
pub(super) struct Place {
    parent: OwnedFd,
    /// The parent's path in the jail.
    pub(super) dir: PathBuf,
    pub(super) name: PathBuf,
}

impl Place {
    /// What is there now, links not followed.
    pub(super) fn stat(&self) -> Option<FileStat> {
        fstatat(&self.parent, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()
    }
}

/// Reads the string at `address` of the process `pid`.
pub(super) fn read_string(pid: u32, address: u64) -> io::Result<Vec<u8>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut text = Vec::new();
    while text.len() < PATH_MAX {
        // Never beyond a page, where the next one may not be there.
        let at = address + u64::try_from(text.len()).map_err(io::Error::other)?;
        let left = 4096 - usize::try_from(at % 4096).map_err(io::Error::other)?;
        let mut piece = vec![0; left.min(PATH_MAX - text.len())];
        memory.read_exact_at(&mut piece, at)?;
        if let Some(end) = piece.iter().position(|&byte| byte == 0) {
            text.extend_from_slice(&piece[..end]);
            return Ok(text);
        }
        text.extend_from_slice(&piece);
    }
    Err(io::ErrorKind::InvalidFilename.into())
}

/// Resolves `path`, relative to the descriptor `dir` of the process `pid`, up to its last name.
///
/// `None` where there is no last name to speak of (`.`, `..`, nothing) or no such directory.
pub(super) fn locate(pid: u32, dir: i32, path: &[u8]) -> Option<Place> {
    let path = Path::new(OsStr::from_bytes(path));
    // `components` drops slashes at the end and single dots, as the kernel does for names that it
    // makes; a last `.` or `..` is no name.
    let Some(Component::Normal(name)) = path.components().next_back() else { return None };
    if path.as_os_str().as_bytes().ends_with(b"/.") {
        return None;
    }
    let leading = path.parent().unwrap_or(Path::new(""));
    let base = if path.is_absolute() {
        PathBuf::from("/")
    } else {
        let base = match dir {
            libc::AT_FDCWD => format!("/proc/{pid}/cwd"),
            number => format!("/proc/{pid}/fd/{number}"),
        };
        PathBuf::from(readlink(Path::new(&base)).ok()?)
    };
    if !base.is_absolute() {
        return None;
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(Path::new(&format!("/proc/{pid}/root")), flags, Mode::empty()).ok()?;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let parent = openat2(&root, &base.join(leading), how).ok()?;
    let own = format!("/proc/self/fd/{}", parent.as_raw_fd());
    let dir = PathBuf::from(readlink(Path::new(&own)).ok()?);
    Some(Place { parent, dir, name: name.into() })
}

/// A number of `/proc/PID/status`, in octal (proc_pid_status(5)).
pub(super) fn umask(pid: u32) -> u32 {
    const USUAL: u32 = 0o022;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL)
}
