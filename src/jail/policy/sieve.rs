//! All patterns compiled into one set.
//!
//! Compiling takes a millisecond, a good part of a launch, and a run asks several times with the
//! same patterns: to scan, to judge names in each guarded tree, to inspect what was left. The last
//! sets are kept.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Tells which paths none of some globs matches.
#[derive(Debug, Clone)]
pub struct Sieve(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    globs: HashSet<Glob>,
    set: GlobSet,
}

static LAST: Mutex<Vec<Sieve>> = Mutex::new(Vec::new());

/// So many sets are kept: one for each tree that a run guards, and some more.
const MOST: usize = 4;

impl Sieve {
    /// A sieve for `globs`. It may be one for more than them.
    pub(super) fn of<'g>(
        globs: impl Iterator<Item = &'g Glob> + Clone,
    ) -> Result<Self, globset::Error> {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let holds_all = |sieve: &&Self| globs.clone().all(|glob| sieve.0.globs.contains(glob));
        if let Some(sieve) = last.iter().find(holds_all) {
            return Ok(sieve.clone());
        }
        let globs: HashSet<Glob> = globs.cloned().collect();
        let mut set = GlobSetBuilder::new();
        for glob in &globs {
            set.add(glob.clone());
        }
        let sieve = Self(Arc::new(Compiled { set: set.build()?, globs }));
        if last.len() >= MOST {
            last.remove(0);
        }
        last.push(sieve.clone());
        Ok(sieve)
    }

    /// Whether a glob may match `path`. None of them does where this says no.
    pub(crate) fn may_match(&self, path: &Path) -> bool {
        self.0.set.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pattern_is_forgotten_over_another() {
        let glob = |pattern| Glob::new(pattern).unwrap();
        let [env, key, pem] = ["**/.env", "*.key", "*.pem"].map(glob);
        let may_match = |globs: &[&Glob], path| {
            Sieve::of(globs.iter().copied()).unwrap().may_match(Path::new(path))
        };
        assert!(may_match(&[&env, &key], "a/.env"));
        assert!(may_match(&[&key], "a.key"));
        assert!(may_match(&[&key, &pem], "a.pem"));
        assert!(may_match(&[&env], ".env"));
        assert!(!may_match(&[&env, &pem], "src/main.rs"));
    }
}
