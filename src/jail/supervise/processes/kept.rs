//! Digests that outlive a run: to read an agent's program takes longer than to launch it.
//!
//! The file lies in the state directory, out of every agent's reach. It is a cache: what cannot be
//! read is empty, and of two runs that end at the same time one is forgotten.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use jiff::Timestamp;
use kvro_ledger::StateDir;

use super::digest::{Facts, Sha};
use crate::replace::replace;

/// What the file begins with: another version would be another format. Pairs of [`Facts`] and
/// [`Sha`] follow, as postcard writes them.
const MAGIC: &[u8] = b"kvro-executables 1\n";
/// Smaller executables are read faster than remembered.
const SMALLEST: u64 = 1 << 20;
const LARGEST: u64 = 4 << 20;
/// One that changed so many seconds ago could change again within the same tick of the clock.
const SETTLED: i64 = 2;

/// Whether the digest of such a file is kept.
pub(super) fn is_worth_it(facts: &Facts) -> bool {
    facts.size() >= SMALLEST
}

/// Where digests are kept.
#[derive(Debug, Clone)]
pub(super) struct Kept(PathBuf);

impl Kept {
    pub(super) fn beside(state: &StateDir) -> Self {
        Self(state.path().join("executables"))
    }

    pub(super) fn load(&self) -> HashMap<Facts, Sha> {
        let read = || -> io::Result<Vec<(Facts, Sha)>> {
            let mut bytes = Vec::new();
            File::open(&self.0)?.take(LARGEST).read_to_end(&mut bytes)?;
            let pairs = bytes.strip_prefix(MAGIC).ok_or(io::ErrorKind::InvalidData)?;
            postcard::from_bytes(pairs).map_err(io::Error::other)
        };
        read().unwrap_or_default().into_iter().collect()
    }

    /// Keeps what of `known` is worth it at the time `now`.
    pub(super) fn save<'k>(
        &self,
        known: impl Iterator<Item = (&'k Facts, &'k Sha)>,
        now: Timestamp,
    ) -> io::Result<()> {
        let settled = now.as_second().saturating_sub(SETTLED);
        let pairs: Vec<_> =
            known.filter(|(facts, _)| is_worth_it(facts) && facts.is_older_than(settled)).collect();
        let words = postcard::to_extend(&pairs, MAGIC.to_vec()).map_err(io::Error::other)?;
        replace(&self.0, &words)
    }
}
