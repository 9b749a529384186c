//! SHA-256 of executables: each file once, for as long as it stays what it is.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::kept::{Kept, is_worth_it};

/// So many digests are kept.
const MOST_KNOWN: usize = 4096;
/// So many files wait to be read.
const MOST_OPEN: usize = 32;
/// A longer file has no digest: to read it would take too long.
const LONGEST: u64 = 512 << 20;
/// When the run is over, so much time is left for files that nobody has read yet.
const AFTER_THE_END: Duration = Duration::from_secs(2);
const CHUNK: usize = 256 * 1024;

/// Which file this is, and as what it was seen. A change of the content changes one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Facts {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Facts {
    fn of(facts: &Metadata) -> Self {
        Self {
            device: facts.dev(),
            inode: facts.ino(),
            size: facts.size(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether nothing changed since the second `moment` of the epoch.
    pub(super) fn is_older_than(&self, moment: i64) -> bool {
        self.changed.0 < moment
    }
}

/// A digest.
pub(super) type Sha = [u8; 32];

/// Where a digest comes from.
#[derive(Debug)]
pub(super) enum Source {
    Known(Sha),
    /// Too many files are open: it is known by the time it is asked for, or not at all.
    Later(Facts),
    Read(Facts, File),
}

/// The digests that are known.
#[derive(Debug, Default)]
pub(super) struct Digests {
    known: Mutex<HashMap<Facts, Sha>>,
    /// How many files wait to be read.
    open: AtomicUsize,
    /// Whether one was read that later runs need not read.
    is_worth_keeping: AtomicBool,
}

impl Digests {
    /// Where the digest of `file` will come from. Fast: nothing is read.
    pub(super) fn source(&self, file: File, facts: &Metadata) -> Option<Source> {
        let facts = Facts::of(facts);
        if let Some(known) = self.lock().get(&facts) {
            return Some(Source::Known(*known));
        }
        if facts.size > LONGEST {
            return None;
        }
        if self.open.fetch_add(1, Ordering::Relaxed) < MOST_OPEN {
            return Some(Source::Read(facts, file));
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        Some(Source::Later(facts))
    }

    /// The digest in hexadecimal; `None` when the file is not what it was any more, or cannot be
    /// read in time. `end` tells when the run was over.
    pub(super) fn resolve(
        &self,
        source: Source,
        end: impl Fn() -> Option<Instant>,
    ) -> Option<String> {
        let digest = match source {
            Source::Known(digest) => digest,
            Source::Later(facts) => self.lock().get(&facts).copied()?,
            Source::Read(facts, file) => {
                self.open.fetch_sub(1, Ordering::Relaxed);
                let known = self.lock().get(&facts).copied();
                known.or_else(|| self.read(facts, file, end))?
            }
        };
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Takes in what earlier runs read.
    pub(super) fn load(&self, kept: &Kept) {
        let earlier = kept.load();
        let mut known = self.lock();
        for (facts, digest) in earlier.into_iter().take(MOST_KNOWN) {
            known.entry(facts).or_insert(digest);
        }
    }

    /// Keeps for later runs what this one read, if it is worth it.
    pub(super) fn save(&self, kept: &Kept, now: Timestamp) {
        if self.is_worth_keeping.load(Ordering::Relaxed) {
            // Nothing is lost where that fails but time.
            drop(kept.save(self.lock().iter(), now));
        }
    }

    fn read(&self, facts: Facts, mut file: File, end: impl Fn() -> Option<Instant>) -> Option<Sha> {
        let mut chunk = vec![0; CHUNK];
        let mut hasher = Sha256::new();
        loop {
            if end().is_some_and(|end| end.elapsed() > AFTER_THE_END) {
                return None;
            }
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => hasher.update(chunk.get(..length)?),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        // The kernel keeps a file from being written while it runs, but not any longer.
        if Facts::of(&file.metadata().ok()?) != facts {
            return None;
        }
        let digest = hasher.finalize().into();
        self.is_worth_keeping.fetch_or(is_worth_it(&facts), Ordering::Relaxed);
        let mut known = self.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(facts, digest);
        Some(digest)
    }

    /// The map is whole at every unlock.
    fn lock(&self) -> MutexGuard<'_, HashMap<Facts, Sha>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use kvro_ledger::StateDir;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn source(digests: &Digests, path: &Path) -> Option<Source> {
        let file = File::open(path).unwrap();
        let facts = file.metadata().unwrap();
        digests.source(file, &facts)
    }

    fn never() -> Option<Instant> {
        None
    }

    #[test]
    fn a_file_is_read_once_and_again_when_it_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tool");
        let digests = Digests::default();
        let open = || source(&digests, &path);
        fs::write(&path, "abc").unwrap();
        let first = open().unwrap();
        assert!(matches!(first, Source::Read(..)));
        assert_eq!(digests.resolve(first, never).as_deref(), Some(ABC));
        assert!(matches!(open(), Some(Source::Known(_))));
        assert_eq!(digests.resolve(open().unwrap(), never).as_deref(), Some(ABC));
        fs::write(&path, "").unwrap();
        let changed = open().unwrap();
        assert_eq!(digests.resolve(changed, never).as_deref(), Some(EMPTY));
    }

    #[test]
    fn what_a_run_read_the_next_one_knows_as_long_as_it_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let (kept, tool) = (Kept::beside(&state), directory.path().join("tool"));
        let large = vec![b'x'; 1 << 20];
        let run = |path: &Path, seconds: i64| {
            let now = fs::metadata(path).unwrap().ctime() + seconds;
            let digests = Digests::default();
            digests.load(&kept);
            let source = source(&digests, path).unwrap();
            let is_known = matches!(source, Source::Known(_));
            let digest = digests.resolve(source, never).unwrap();
            digests.save(&kept, Timestamp::from_second(now).unwrap());
            (is_known, digest)
        };
        fs::write(&tool, &large).unwrap();
        let (_, digest) = run(&tool, 2);
        // It had changed too lately to be sure of.
        assert_eq!(run(&tool, 3), (false, digest.clone()));
        assert_eq!(run(&tool, 3), (true, digest.clone()));
        // A small one is read again, and keeps nothing from being known.
        let small = directory.path().join("small");
        fs::write(&small, "abc").unwrap();
        assert_eq!(run(&small, 9), (false, ABC.to_owned()));
        assert!(!run(&small, 9).0);
        assert_eq!(run(&tool, 9), (true, digest.clone()));
        fs::write(&tool, [&large[..], b"y"].concat()).unwrap();
        let (is_known, other) = run(&tool, 9);
        assert!(!is_known && other != digest);
        fs::write(state.path().join("executables"), "no such thing").unwrap();
        assert_eq!(run(&tool, 9), (false, other));
        let left: Vec<_> = fs::read_dir(state.path()).unwrap().flatten().collect();
        let is_part = |name: &str| name.starts_with("executables.");
        assert!(!left.iter().any(|entry| is_part(&entry.file_name().to_string_lossy())));
    }

    #[test]
    fn a_file_that_is_written_after_it_ran_has_no_digest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tool");
        fs::write(&path, "abc").unwrap();
        let digests = Digests::default();
        let source = source(&digests, &path).unwrap();
        fs::write(&path, "harmless").unwrap();
        assert_eq!(digests.resolve(source, never), None);
    }

    #[test]
    fn files_that_wait_are_few_and_the_same_file_need_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tool");
        fs::write(&path, "abc").unwrap();
        let digests = Digests::default();
        let sources: Vec<Source> = (0..100).map(|_| source(&digests, &path).unwrap()).collect();
        let open = sources.iter().filter(|source| matches!(source, Source::Read(..))).count();
        assert_eq!(open, MOST_OPEN);
        for source in sources {
            assert_eq!(digests.resolve(source, never).as_deref(), Some(ABC));
        }
        assert_eq!(digests.open.load(Ordering::Relaxed), 0);
    }
}
