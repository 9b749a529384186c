//! How a file, a directory or a process is known again.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path in any encoding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Raw(pub PathBuf);

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_os_str().as_bytes().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        Ok(Self(std::ffi::OsString::from_vec(bytes).into()))
    }
}

impl From<&Path> for Raw {
    fn from(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

/// Which file or directory it is, whatever it is called.
///
/// An inode's number is given again to the next file, so the time of its birth belongs to it where
/// the filesystem tells one: nobody can set that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
    born: Option<(u64, u32)>,
}

impl Identity {
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let born = metadata.created().ok();
        let born = born.and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born.map(|born| (born.as_secs(), born.subsec_nanos())),
        }
    }

    /// A device may have another number after the machine was started again.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let has_birth = self.born.is_some() && other.born.is_some();
        let by_place =
            if has_birth { self.born == other.born } else { self.device == other.device };
        self.inode == other.inode && by_place
    }
}

/// Which process it is: a number is given again, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pid: i32,
    /// In ticks since the machine was started.
    started: u64,
}

impl Process {
    /// The process behind `pidfd`.
    pub fn of(pidfd: BorrowedFd<'_>) -> io::Result<Self> {
        let words = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
        let pid = words.lines().find_map(|line| line.strip_prefix("Pid:"));
        let pid = pid.and_then(|pid| pid.trim().parse().ok());
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let started = alive_since(pid).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self { pid, started })
    }

    /// One that is no more.
    #[cfg(test)]
    pub(super) const fn dead() -> Self {
        Self { pid: i32::MAX, started: 0 }
    }

    /// Waits until it is dead, and says whether it is. After `patience` it is not.
    #[must_use]
    pub fn is_gone_within(self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while alive_since(self.pid) == Some(self.started) {
            if Instant::now() > end {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

/// When the process `pid` was started, if it is alive.
fn alive_since(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything, brackets too.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
    let started = fields.nth(18)?.parse().ok()?;
    (!is_dead).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let pid = std::process::id().try_into().unwrap();
        let started = alive_since(pid).unwrap();
        assert!(!Process { pid, started }.is_gone_within(Duration::ZERO));
        assert!(Process { pid, started: started + 1 }.is_gone_within(Duration::ZERO));
        assert_eq!(alive_since(i32::MAX), None);
    }

    #[test]
    fn a_file_is_known_after_a_rename_and_not_after_a_replacement() {
        let place = tempfile::tempdir().unwrap();
        let (a, b) = (place.path().join("a"), place.path().join("b"));
        let identity = |path: &Path| Identity::of(&fs::symlink_metadata(path).unwrap());
        fs::write(&a, "1").unwrap();
        let first = identity(&a);
        fs::rename(&a, &b).unwrap();
        assert!(identity(&b).is_same(&first));
        fs::write(&a, "1").unwrap();
        assert!(!identity(&a).is_same(&first));
    }

    #[test]
    fn a_path_in_any_encoding_comes_back() {
        let path = Raw(std::ffi::OsString::from_vec(b"a\xff\n/b".to_vec()).into());
        let bytes = postcard::to_stdvec(&path).unwrap();
        assert_eq!(postcard::from_bytes::<Raw>(&bytes).unwrap(), path);
    }
}
