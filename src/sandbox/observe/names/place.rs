//! Where a path leads, as the jail sees it.
//!
//! The string is read once, and the directory it leads to is resolved in the jail's own root: what
//! the caller changes afterwards changes nothing that is decided here. What cannot be resolved is
//! left to the kernel, which finds the view read-only.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2, readlink, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

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

    /// The place that a link here leads to for `caller`, or this one if none is here.
    ///
    /// `None` where nothing can be made through the link.
    pub(super) fn followed(mut self, caller: Caller<'_>) -> Option<Self> {
        for _ in 0..MOST_LINKS {
            if !self.stat().is_some_and(|stat| is_link(&stat)) {
                return Some(self);
            }
            // What a link of a process leads to is there already.
            if is_of_processes(&self.parent) {
                return None;
            }
            let text = readlinkat(&self.parent, self.name.as_os_str()).ok()?;
            self = caller.locate_from(&self.dir, text.as_bytes())?;
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

/// A thread of the jail that looks a path up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'r> {
    pid: u32,
    /// The jail's root, which is that of every process in it: none of them can change its own.
    root: &'r OwnedFd,
}

/// Opens the root of the process `pid`.
pub(super) fn root_of(pid: u32) -> io::Result<OwnedFd> {
    Ok(open(Path::new(&format!("/proc/{pid}/root")), DIRECTORY, Mode::empty())?)
}

impl<'r> Caller<'r> {
    pub(super) fn new(pid: u32, root: &'r OwnedFd) -> Self {
        Self { pid, root }
    }

    /// Resolves `path`, relative to the caller's descriptor `dir`, up to its last name.
    ///
    /// `None` where there is no last name to speak of (`.`, `..`, nothing) or no such directory.
    pub(super) fn locate(self, dir: i32, path: &[u8]) -> Option<Place> {
        if path.starts_with(b"/") {
            return self.locate_from(Path::new("/"), path);
        }
        let base = match dir {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.pid),
            number => format!("/proc/{}/fd/{number}", self.pid),
        };
        self.locate_from(Path::new(&readlink(Path::new(&base)).ok()?), path)
    }

    fn locate_from(self, base: &Path, path: &[u8]) -> Option<Place> {
        let slashes = path.iter().rev().take_while(|&&byte| byte == b'/').count();
        let (without_slashes, ends_in_slash) = (&path[..path.len() - slashes], slashes > 0);
        // `components` drops single dots; a last one is no name.
        if without_slashes.ends_with(b"/.") {
            return None;
        }
        let path = Path::new(OsStr::from_bytes(path));
        let Some(Component::Normal(name)) = path.components().next_back() else { return None };
        let (parent, dir) = self.directory(&base.join(path.parent().unwrap_or(Path::new(""))))?;
        Some(Place { parent, dir, name: name.into(), ends_in_slash })
    }

    /// Opens the directory `path` as the caller would, and says where it is.
    fn directory(self, path: &Path) -> Option<(OwnedFd, PathBuf)> {
        if !path.is_absolute() {
            return None;
        }
        let how = OpenHow::new().flags(DIRECTORY).resolve(ResolveFlag::RESOLVE_IN_ROOT);
        // Where no link is on the way, the path that was looked up is the one that is there.
        if !path.components().any(|part| part == Component::ParentDir) {
            let straight = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
            if let Ok(parent) = openat2(self.root, path, how.resolve(straight)) {
                return Some((parent, path.components().collect()));
            }
        }
        let parent = match openat2(self.root, path, how) {
            Ok(parent) => parent,
            // Links in /proc lead elsewhere for us, or not at all: what they say is looked up
            // instead.
            Err(_) => openat2(self.root, &self.without_links(path)?, how).ok()?,
        };
        let own = format!("/proc/self/fd/{}", parent.as_raw_fd());
        let dir = PathBuf::from(readlink(Path::new(&own)).ok()?);
        Some((parent, dir))
    }

    /// `path` with every link in it replaced by what it says to the caller.
    fn without_links(self, path: &Path) -> Option<PathBuf> {
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
            let there = openat2(self.root, &next, how).ok()?;
            if !fstat(&there).is_ok_and(|stat| is_link(&stat)) {
                real = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            left.extend(parts(&self.target(&there, &next)?));
        }
        Some(real)
    }

    /// What the link `there`, which lies at `path`, says to the caller.
    fn target(self, there: &OwnedFd, path: &Path) -> Option<PathBuf> {
        let is_own = |name: &str| path.file_name().is_some_and(|last| last == name);
        if is_of_processes(there) && (is_own("self") || is_own("thread-self")) {
            let process = self.status("NStgid:")?.split_whitespace().next_back()?.to_owned();
            let thread = self.status("NSpid:")?.split_whitespace().next_back()?.to_owned();
            let is_thread = is_own("thread-self");
            return Some(if is_thread {
                format!("{process}/task/{thread}").into()
            } else {
                process.into()
            });
        }
        readlinkat(there, "").ok().map(PathBuf::from)
    }

    pub(super) fn umask(self) -> u32 {
        const USUAL: u32 = 0o022;
        let mask = self.status("Umask:");
        mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL)
    }

    /// A line of `/proc/PID/status` (proc_pid_status(5)).
    fn status(self, name: &str) -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    }
}

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    /// This process looks itself up: its directory and name as they were found, and whether the
    /// path ended in a slash.
    fn found(dir: i32, path: &str) -> Option<(String, String, bool)> {
        let root = root_of(std::process::id()).unwrap();
        let place = Caller::new(std::process::id(), &root).locate(dir, path.as_bytes())?;
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
        assert_eq!(by_fd("link/new"), place(&at_a, "new", false));
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
        let root = root_of(std::process::id()).unwrap();
        let caller = Caller::new(std::process::id(), &root);
        let followed = |name: &str| {
            let place = caller.locate(libc::AT_FDCWD, at(name).as_os_str().as_bytes());
            place.unwrap().followed(caller).map(|place| place.dir.join(place.name))
        };
        assert_eq!(followed("first"), Some(at("sub/new")));
        assert_eq!(followed("plain"), Some(at("plain")));
        assert_eq!(followed("round"), None);
        assert_eq!(followed("proc"), None);
    }
}
