//! The stub's own count and its request log.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use serde::Serialize;

/// Tokens by disjoint kind, named as a run's report names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
}

/// What was accepted and sent since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    /// Generation requests answered with a success.
    pub(crate) generations: u64,
    /// Generation requests answered with an error.
    pub(crate) rejected: u64,
    /// What has left in answers; a stream that was cut counts what it had said by then.
    pub(crate) tokens: Usage,
}

/// One line of the log.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Entry {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    pub(crate) model: Option<String>,
    /// What this answer said was used.
    pub(crate) usage: Option<Usage>,
    /// Whether the answer's last byte was handed to the connection.
    pub(crate) whole: bool,
}

/// The shared count; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tally(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    totals: Totals,
    log: File,
}

impl Tally {
    pub(crate) fn create(log: &Path) -> anyhow::Result<Self> {
        let log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        Ok(Self(Arc::new(Mutex::new(State { totals: Totals::default(), log }))))
    }

    pub(crate) fn totals(&self) -> Totals {
        self.lock().totals
    }

    /// Counts a generation and returns its number, from 1.
    pub(crate) fn accept(&self) -> u64 {
        let mut state = self.lock();
        state.totals.generations += 1;
        state.totals.generations
    }

    pub(crate) fn reject(&self) {
        self.lock().totals.rejected += 1;
    }

    /// Counts the step from what an answer had said to what it says now.
    pub(crate) fn sent(&self, before: Usage, now: Usage) {
        let tokens = &mut self.lock().totals.tokens;
        tokens.input += now.input - before.input;
        tokens.cache_read += now.cache_read - before.cache_read;
        tokens.cache_write += now.cache_write - before.cache_write;
        tokens.output += now.output - before.output;
    }

    /// Adds a line to the log. A log that cannot be written does not stop the answer: the totals
    /// are the witness, the log is for reading.
    pub(crate) fn log(&self, entry: &Entry) {
        if let Ok(line) = serde_json::to_string(entry) {
            drop(writeln!(self.lock().log, "{line}"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
