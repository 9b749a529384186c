//! Whether a cache layer came through a crash of the machine.
//!
//! An overlay is mounted without syncing (`volatile`), since a synced one makes the end of every run
//! wait for the disk. What it wrote reaches the disk by the kernel's own write-back. A note beside
//! the layers says in which start of the machine they were last used, and when; after a crash within
//! minutes of that they are thrown away, as overlayfs asks (Documentation/filesystems/overlayfs.rst,
//! "Volatile mount").

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const NOTE: &str = "boot";

/// Write-back begins after 30 s by default and is done long before this.
const SETTLED: Duration = Duration::from_mins(5);

/// This start of the machine.
#[derive(Debug, Clone)]
pub(super) struct Trust {
    boot_id: String,
    /// Since the Unix epoch.
    booted: Duration,
}

impl Trust {
    /// What the kernel says of this start; without that, no layer of before is trusted.
    pub(super) fn of_this_start() -> Self {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let btime = stat.lines().find_map(|line| line.strip_prefix("btime "));
        let booted = btime.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or(0);
        Self { boot_id: boot_id.trim().to_owned(), booted: Duration::from_secs(booted) }
    }

    /// Throws away what lies in `caches` unless it is whole, and notes this start.
    pub(super) fn renew(&self, caches: &Path) -> io::Result<()> {
        if !self.is_whole(caches) {
            for entry in fs::read_dir(caches)? {
                let path = entry?.path();
                if path.is_dir() {
                    remove(&path)?;
                }
            }
        }
        self.note(caches)
    }

    /// Written in place: a file that is cut to nothing first is flushed at its close by
    /// filesystems that guard such a replacement (ext4's `auto_da_alloc`), which takes milliseconds.
    pub(super) fn note(&self, caches: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let mut note = options.open(caches.join(NOTE))?;
        note.write_all(self.boot_id.as_bytes())?;
        let len = u64::try_from(self.boot_id.len()).unwrap_or(u64::MAX);
        if note.metadata()?.len() == len { Ok(()) } else { note.set_len(len) }
    }

    fn is_whole(&self, caches: &Path) -> bool {
        let note = caches.join(NOTE);
        let Ok(last) = fs::read_to_string(&note) else { return false };
        if last == self.boot_id && !last.is_empty() {
            return true;
        }
        let noted = fs::metadata(&note).and_then(|m| m.modified()).ok();
        let noted = noted.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        noted.is_some_and(|noted| noted + SETTLED < self.booted)
    }
}

/// Removes a tree whose directories may be closed even to their owner, as overlayfs leaves them.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_dir() => return fs::remove_file(path),
        Ok(_) => {}
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        remove(&entry?.path())?;
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(boot_id: &str, booted: Duration) -> Trust {
        Trust { boot_id: boot_id.to_owned(), booted }
    }

    fn layer_after(second: &Trust) -> bool {
        let caches = tempfile::tempdir().unwrap();
        start("first", Duration::ZERO).renew(caches.path()).unwrap();
        fs::create_dir_all(caches.path().join("layer/work/work")).unwrap();
        fs::set_permissions(caches.path().join("layer/work"), fs::Permissions::from_mode(0o000))
            .unwrap();
        second.renew(caches.path()).unwrap();
        caches.path().join("layer").exists()
    }

    #[test]
    fn a_layer_lives_through_a_start_of_the_machine_that_came_late_enough() {
        let now = UNIX_EPOCH.elapsed().unwrap();
        assert!(layer_after(&start("first", now)));
        assert!(layer_after(&start("second", now + SETTLED * 2)));
    }

    #[test]
    fn a_note_holds_the_last_start_and_nothing_of_the_one_before() {
        let caches = tempfile::tempdir().unwrap();
        for boot_id in ["a-long-name", "short", ""] {
            start(boot_id, Duration::ZERO).note(caches.path()).unwrap();
            assert_eq!(fs::read_to_string(caches.path().join(NOTE)).unwrap(), boot_id);
        }
    }

    #[test]
    fn a_layer_that_may_be_torn_is_thrown_away() {
        let now = UNIX_EPOCH.elapsed().unwrap();
        assert!(!layer_after(&start("second", now)));
        assert!(!layer_after(&start("", now)));
    }
}
