//! SHA-256 of executables: each file once, for as long as it stays what it is.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
}

/// Where a digest comes from.
#[derive(Debug)]
pub(super) enum Source {
    Known(String),
    /// Too many files are open: it is known by the time it is asked for, or not at all.
    Later(Facts),
    Read(Facts, File),
}

/// The digests that are known.
#[derive(Debug, Default)]
pub(super) struct Digests {
    known: Mutex<HashMap<Facts, String>>,
    /// How many files wait to be read.
    open: AtomicUsize,
}

impl Digests {
    /// Where the digest of `file` will come from. Fast: nothing is read.
    pub(super) fn source(&self, file: File, facts: &Metadata) -> Option<Source> {
        let facts = Facts::of(facts);
        if let Some(known) = self.lock().get(&facts) {
            return Some(Source::Known(known.clone()));
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
        match source {
            Source::Known(digest) => Some(digest),
            Source::Later(facts) => self.lock().get(&facts).cloned(),
            Source::Read(facts, file) => {
                self.open.fetch_sub(1, Ordering::Relaxed);
                let known = self.lock().get(&facts).cloned();
                known.or_else(|| self.read(facts, file, end))
            }
        }
    }

    fn read(
        &self,
        facts: Facts,
        mut file: File,
        end: impl Fn() -> Option<Instant>,
    ) -> Option<String> {
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
        let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut known = self.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(facts, digest.clone());
        Some(digest)
    }

    /// The map is whole at every unlock.
    fn lock(&self) -> MutexGuard<'_, HashMap<Facts, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

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
        assert!(matches!(open(), Some(Source::Known(known)) if known == ABC));
        fs::write(&path, "").unwrap();
        let changed = open().unwrap();
        assert_eq!(digests.resolve(changed, never).as_deref(), Some(EMPTY));
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
