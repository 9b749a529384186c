//! What verification finds, as values.

use std::fmt;

use crate::{IndexError, RunId, read::ReadError};

/// The finding about an index and the runs that were looked at.
#[derive(Debug)]
pub struct Verification {
    pub index: Soundness<IndexError>,
    pub runs: Vec<RunVerified>,
}

/// The finding about one run.
#[derive(Debug)]
pub struct RunVerified {
    pub run: RunId,
    /// The whole entries from the start up to the end or the first break.
    pub entries: u64,
    pub openness: Openness,
    pub soundness: Soundness<ReadError>,
}

/// Whether a chain is what was written.
#[derive(Debug)]
pub enum Soundness<E> {
    Intact,
    Broken(Break),
    Unreadable(E),
}

impl<E> Soundness<E> {
    #[must_use]
    pub const fn broken(&self) -> Option<Break> {
        match self {
            Self::Broken(at) => Some(*at),
            Self::Intact | Self::Unreadable(_) => None,
        }
    }

    const fn outcome(&self) -> Outcome {
        match self {
            Self::Intact => Outcome::Intact,
            Self::Broken(_) => Outcome::Broken,
            Self::Unreadable(_) => Outcome::Unreadable,
        }
    }
}

/// How a run stands in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openness {
    /// Its end is known: nothing can be cut from it unnoticed.
    Closed,
    /// Somebody writes it now.
    Live,
    /// Its supervisor died; the next run will close it. Until then nobody can tell whether
    /// entries were cut from its end.
    Abandoned,
}

/// The first place where a chain is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Break {
    /// The entry that is wrong or missing.
    pub seq: u64,
    pub reason: Reason,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}: {}", self.seq, self.reason)
    }
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Changed,
    NotAnEntry,
    Missing,
    OutOfOrder,
    OfAnotherRun,
    TornTail,
    CutTail,
    AfterTheEnd,
    NotInTheIndex,
    OpenedTwice,
    ClosedTwice,
    ClosedUnopened,
    PromiseBroken,
    Disagreed,
    LedgerMissing,
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::NotAnEntry => "not_an_entry",
            Self::Missing => "missing",
            Self::OutOfOrder => "out_of_order",
            Self::OfAnotherRun => "of_another_run",
            Self::TornTail => "torn_tail",
            Self::CutTail => "cut_tail",
            Self::AfterTheEnd => "after_the_end",
            Self::NotInTheIndex => "not_in_the_index",
            Self::OpenedTwice => "opened_twice",
            Self::ClosedTwice => "closed_twice",
            Self::ClosedUnopened => "closed_unopened",
            Self::PromiseBroken => "promise_broken",
            Self::Disagreed => "disagreed",
            Self::LedgerMissing => "ledger_missing",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "was changed",
            Self::NotAnEntry => "is no entry",
            Self::Missing => "is missing",
            Self::OutOfOrder => "is out of order",
            Self::OfAnotherRun => "belongs to another run",
            Self::TornTail => "is torn",
            Self::CutTail => "is missing: the end was cut off",
            Self::AfterTheEnd => "was added after the end",
            Self::NotInTheIndex => "belongs to a run that the index does not know",
            Self::OpenedTwice => "opens a run a second time",
            Self::ClosedTwice => "closes a run a second time",
            Self::ClosedUnopened => "closes a run that was never opened",
            Self::PromiseBroken => "is not what index.head promises: the end was cut or changed",
            Self::Disagreed => "records that the end of the index had been cut or changed",
            Self::LedgerMissing => "is missing: the whole ledger was removed",
        })
    }
}

/// The sum of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Intact,
    Unreadable,
    Broken,
}

impl Verification {
    /// Broken if anything is, else unreadable if anything is.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let runs = self.runs.iter().map(|run| run.soundness.outcome());
        runs.fold(self.index.outcome(), Outcome::max)
    }
}
