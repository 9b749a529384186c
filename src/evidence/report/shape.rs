//! What a report says. Field for field this is the public JSON.

use jiff::Timestamp;
use kvro_ledger::Entry;
use kvro_ledger::event::{Cost, EndedBy};
use serde::{Deserialize, Serialize};

use crate::processes::Missed;
use crate::report::fold::Fold;
use crate::report::{Latency, Refused};

/// What happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    pub run: String,
    pub command: Vec<String>,
    pub started: Option<Timestamp>,
    /// `None` while the run goes on, and for one whose supervisor died.
    pub ended: Option<Timestamp>,
    pub exit_code: Option<u8>,
    pub ended_by: Option<EndedBy>,
    pub reason: String,
    /// The level of isolation in force; `None` when the run ended before there was one.
    pub level: Option<String>,
    /// Layers that the user accepted to go without.
    pub degraded: Vec<String>,
    /// Where the ledger lies.
    pub ledger: String,
    /// Generations that a provider accepted.
    pub turns: u64,
    /// Billable requests that were let through.
    pub calls: u64,
    pub tokens: Tokens,
    /// The largest context of a single generation.
    pub context_tokens: u64,
    pub cost_usd: Cost,
    pub duration_ms: Option<u64>,
    /// From a call's arrival at the door to the last byte of its answer.
    pub latency: Option<Latency>,
    /// From a call's arrival at the door to the first byte of its answer.
    pub first_byte: Option<Latency>,
    pub refused: Vec<Refused>,
    /// Hidden files that were opened, each once.
    pub hidden_opened: Vec<String>,
    /// How often, all together.
    pub hidden_opens: u64,
    pub quarantined: Vec<String>,
    /// How many processes are on record.
    pub processes: u64,
    /// What is not on record, and why.
    pub missed: Vec<Missed>,
    pub alerts: Vec<Alert>,
}

/// Tokens by disjoint kind: their sum is what was billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub input: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub output: u64,
}

/// Something a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub what: String,
    pub detail: String,
}

impl RunReport {
    /// Folds the entries of one run, whose ledger lies at `ledger`.
    ///
    /// The entries may stop anywhere: what is not known yet is `None`.
    #[must_use]
    pub fn from_entries<'a>(ledger: &str, entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut fold = Fold::default();
        entries.into_iter().for_each(|entry| fold.take(entry));
        fold.finish(ledger)
    }
}
