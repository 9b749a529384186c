//! Where a path leads, as the jail sees it.
//!
//! The string is read once, and the directory it leads to is resolved in the jail's own root: what
//! the caller changes afterwards changes nothing that is decided here. What cannot be resolved is
//! left to the kernel, which finds the view read-only.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2, readlink, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// The longest path that the kernel takes, its end included.
const PATH_MAX: usize = 4096;

/// The kernel follows so many links (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// A name in a directory of the jail.
#[derive(Debug)]
pub(super) struct Place {
    parent: OwnedFd,
    /// The parent's path in the jail.
    pub(super) dir: PathBuf,
    pub(super) name: PathBuf,
    /// A path that ends in a slash is that of a directory.
    pub(super) ends_in_slash: bool,
}

impl Place {
    /// What is there now, links not followed.
    pub(super) fn stat(&self) -> Option<FileStat> {
        fstatat(&self.parent, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()
    }

    /// The place that a link here leads to for the process `pid`, or this one if none is here.
    ///
    /// `None` where nothing can be made through the link.
    pub(super) fn followed(mut self, pid: u32) -> Option<Self> {
        for _ in 0..MOST_LINKS {
            if !self.stat().is_some_and(|stat| is_link(&stat)) {
                return Some(self);
            }
            // What a link of a process leads to is there already.
            if is_of_processes(&self.parent) {
                return None;
            }
            let text = readlinkat(&self.parent, self.name.as_os_str()).ok()?;
            self = locate_from(pid, &self.dir, text.as_bytes())?;
        }
        None
    }
}

pub(super) fn is_link(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFLNK
}

pub(super) fn is_dir(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}

/// Whether this lies in a /proc.
fn is_of_processes(fd: &OwnedFd) -> bool {
    fstatfs(fd).is_ok_and(|on| on.filesystem_type() == PROC_SUPER_MAGIC)
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
    if path.starts_with(b"/") {
        return locate_from(pid, Path::new("/"), path);
    }
    let base = match dir {
        libc::AT_FDCWD => format!("/proc/{pid}/cwd"),
        number => format!("/proc/{pid}/fd/{number}"),
    };
    locate_from(pid, Path::new(&readlink(Path::new(&base)).ok()?), path)
}

fn locate_from(pid: u32, base: &Path, path: &[u8]) -> Option<Place> {
    let slashes = path.iter().rev().take_while(|&&byte| byte == b'/').count();
    let (without_slashes, ends_in_slash) = (&path[..path.len() - slashes], slashes > 0);
    // `components` drops single dots; a last one is no name.
    if without_slashes.ends_with(b"/.") {
        return None;
    }
    let path = Path::new(OsStr::from_bytes(path));
    let Some(Component::Normal(name)) = path.components().next_back() else { return None };
    let parent = directory(pid, &base.join(path.parent().unwrap_or(Path::new(""))))?;
    let own = format!("/proc/self/fd/{}", parent.as_raw_fd());
    let dir = PathBuf::from(readlink(Path::new(&own)).ok()?);
    Some(Place { parent, dir, name: name.into(), ends_in_slash })
}

/// Opens the directory `path` as the process `pid` would.
fn directory(pid: u32, path: &Path) -> Option<OwnedFd> {
    if !path.is_absolute() {
        return None;
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(Path::new(&format!("/proc/{pid}/root")), flags, Mode::empty()).ok()?;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(&root, path, how) {
        Ok(parent) => Some(parent),
        // Links in /proc lead elsewhere for us, or not at all: what they say is looked up instead.
        Err(_) => openat2(&root, &without_links(pid, &root, path)?, how).ok(),
    }
}

/// `path` with every link in it replaced by what it says to the process `pid`.
fn without_links(pid: u32, root: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let parts = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut real, mut left, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = left.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        // A part that is the root itself starts anew.
        let next = real.join(part);
        let there = openat2(root, &next, how).ok()?;
        if !fstat(&there).is_ok_and(|stat| is_link(&stat)) {
            real = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return None;
        }
        left.extend(parts(&target(pid, &there, &next)?));
    }
    Some(real)
}

/// What the link `there`, which lies at `path`, says to the process `pid`.
fn target(pid: u32, there: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let is_own = |name: &str| path.file_name().is_some_and(|last| last == name);
    if is_of_processes(there) && (is_own("self") || is_own("thread-self")) {
        let process = status(pid, "NStgid:")?.split_whitespace().next_back()?.to_owned();
        let thread = status(pid, "NSpid:")?.split_whitespace().next_back()?.to_owned();
        let is_thread = is_own("thread-self");
        return Some(if is_thread {
            format!("{process}/task/{thread}").into()
        } else {
            process.into()
        });
    }
    readlinkat(there, "").ok().map(PathBuf::from)
}

/// The process's umask.
pub(super) fn umask(pid: u32) -> u32 {
    const USUAL: u32 = 0o022;
    let mask = status(pid, "Umask:");
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL)
}

/// A line of `/proc/PID/status` (proc_pid_status(5)).
fn status(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// This process looks itself up: its directory and name as they were found, and whether the
    /// path ended in a slash.
    fn found(dir: i32, path: &str) -> Option<(String, String, bool)> {
        let place = locate(std::process::id(), dir, path.as_bytes())?;
        let text = |path: &Path| path.display().to_string();
        Some((text(&place.dir), text(&place.name), place.ends_in_slash))
    }

    #[test]
    fn a_path_leads_to_its_last_name() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::open(&dir).unwrap();
        let root = fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        symlink("a", root.join("link")).unwrap();
        let (own, at_a) = (root.display().to_string(), root.join("a").display().to_string());
        let place = |dir: &str, name: &str, slash| Some((dir.to_owned(), name.to_owned(), slash));
        let by_fd = |path: &str| found(open.as_raw_fd(), path);
        assert_eq!(by_fd("new"), place(&own, "new", false));
        assert_eq!(by_fd("a/.//new//"), place(&at_a, "new", true));
        assert_eq!(by_fd("a/../link/new"), place(&at_a, "new", false));
        assert_eq!(by_fd("link"), place(&own, "link", false));
        assert_eq!(by_fd(&format!("{own}/a/new")), place(&at_a, "new", false));
        for no_name in ["", ".", "..", "a/.", "a/..", "a/./", "/", "no/such", "missing/../../new"] {
            assert_eq!(by_fd(no_name), None, "{no_name:?}");
        }
    }

    #[test]
    fn a_path_through_proc_leads_where_it_leads_for_the_caller() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::open(&dir).unwrap();
        let own = format!("/proc/self/fd/{}", open.as_raw_fd());
        let real = fs::read_link(&own).unwrap().display().to_string();
        symlink(&own, dir.path().join("link")).unwrap();
        let expected = Some((real.clone(), "new".to_owned(), false));
        let number = open.as_raw_fd();
        for path in [
            format!("{own}/new"),
            format!("/proc/thread-self/fd/{number}/new"),
            format!("/dev/fd/{number}/new"),
            format!("/proc/self/root{real}/new"),
            format!("/proc/{}/root/proc/self/root{real}/./new", std::process::id()),
            format!("{real}/link/new"),
        ] {
            assert_eq!(found(libc::AT_FDCWD, &path), expected, "{path}");
        }
    }

    #[test]
    fn links_that_are_followed_lead_to_what_would_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        symlink("sub/../second", at("first")).unwrap();
        symlink("sub/new", at("second")).unwrap();
        symlink("round", at("round")).unwrap();
        symlink("/proc/self/exe", at("proc")).unwrap();
        let followed = |name: &str| {
            let place = locate(std::process::id(), libc::AT_FDCWD, at(name).as_os_str().as_bytes());
            place.unwrap().followed(std::process::id()).map(|place| place.dir.join(place.name))
        };
        assert_eq!(followed("first"), Some(at("sub/new")));
        assert_eq!(followed("plain"), Some(at("plain")));
        assert_eq!(followed("round"), None);
        assert_eq!(followed("proc"), None);
    }

    #[test]
    fn a_string_is_read_up_to_its_end_and_no_further_than_a_path_goes() {
        let read = |text: &[u8]| {
            read_string(std::process::id(), u64::try_from(text.as_ptr().addr()).unwrap())
        };
        assert_eq!(read(b"name\0rest").unwrap(), b"name");
        // Over the end of a page, wherever the allocation begins.
        let mut long = vec![b'x'; 4095];
        long.push(0);
        assert_eq!(read(&long).unwrap(), long[..4095]);
        let endless = vec![b'x'; 3 * 4096];
        assert_eq!(read(&endless).unwrap_err().kind(), io::ErrorKind::InvalidFilename);
        drop(read_string(std::process::id(), 0).unwrap_err());
    }
}
