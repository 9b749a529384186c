//! Verification of runs against their chains and the index.

use std::collections::BTreeSet;

use crate::RunId;
use crate::index::Closed;
use crate::read::{Lines, ReadError};
use crate::state::{StateDir, StateError};
use crate::verify::book::Book;
use crate::verify::walk::Walk;
use crate::verify::{Break, Openness, Reason, RunVerified, Soundness, Verification};

/// Verifies one run, and the index that vouches for its end.
#[must_use]
pub fn verify_run(state: &StateDir, run: &RunId) -> Verification {
    let Book { runs, soundness } = Book::read(state);
    let checked = check(state, run, runs.get(run).copied());
    Verification { index: soundness, runs: vec![checked] }
}

/// Verifies the index and every run that it, or the directory of runs, knows.
pub fn verify_all(state: &StateDir) -> Result<Verification, StateError> {
    // The directory is listed first: a run that starts now is in the index before its ledger has
    // an entry.
    let listed = state.runs()?;
    let Book { runs, soundness } = Book::read(state);
    let all: BTreeSet<&RunId> = runs.keys().chain(&listed).collect();
    let checked = all.into_iter().map(|run| check(state, run, runs.get(run).copied()));
    Ok(Verification { runs: checked.collect(), index: soundness })
}

/// `indexed` is what the index says of the run, if it knows it: its end, if it has one.
fn check(state: &StateDir, run: &RunId, indexed: Option<Option<Closed>>) -> RunVerified {
    let closed = indexed.flatten();
    let mut openness = if closed.is_some() { Openness::Closed } else { Openness::Abandoned };
    let mut lines = match Lines::open(state, run) {
        Ok(lines) => lines,
        Err(error) => {
            let gone = matches!(&error, ReadError::State { cause, .. } if cause.is_missing());
            let soundness = if gone && indexed.is_some() {
                Soundness::Broken(Break { seq: 1, reason: Reason::LedgerMissing })
            } else {
                Soundness::Unreadable(error)
            };
            return RunVerified { run: run.clone(), entries: 0, openness, soundness };
        }
    };
    if closed.is_none() && lines.is_held() {
        openness = Openness::Live;
    }
    let mut walk = Walk::new();
    let walked = walk_run(&mut lines, run, &mut walk);
    let entries = walk.head().seq;
    let soundness = match walked {
        Err(error) => Soundness::Unreadable(error),
        Ok(()) => {
            let at = walk
                .end(closed.map(|closed| closed.head))
                .or_else(|| check_end(&walk, lines.rest(), closed, openness))
                .or_else(|| {
                    // A run that died between making its directory and entering the index has
                    // recorded nothing.
                    let unknown = indexed.is_none() && entries > 0;
                    unknown.then_some(Break { seq: 1, reason: Reason::NotInTheIndex })
                });
            at.map_or(Soundness::Intact, Soundness::Broken)
        }
    };
    RunVerified { run: run.clone(), entries, openness, soundness }
}

fn walk_run(lines: &mut Lines, run: &RunId, walk: &mut Walk) -> Result<(), ReadError> {
    while let Some(line) = lines.next_line()? {
        if let Some(read) = walk.step(&line)
            && read.run != *run
        {
            walk.break_at(read.seq, Reason::OfAnotherRun);
        }
    }
    Ok(())
}

/// Compares the end of a sound chain with what is known of it.
fn check_end(
    walk: &Walk,
    rest: &[u8],
    closed: Option<Closed>,
    openness: Openness,
) -> Option<Break> {
    let head = walk.head();
    let next = head.seq + 1;
    let Some(closed) = closed else {
        // The writer of a live run may be in the middle of its last line.
        let torn = !rest.is_empty() && openness != Openness::Live;
        return torn.then_some(Break { seq: next, reason: Reason::TornTail });
    };
    let at = |seq, reason| Some(Break { seq, reason });
    if head.seq > closed.lines {
        at(closed.lines + 1, Reason::AfterTheEnd)
    } else if head.seq < closed.lines {
        at(next, if rest.is_empty() { Reason::CutTail } else { Reason::TornTail })
    } else if !rest.is_empty() {
        at(next, Reason::AfterTheEnd)
    } else if Closed::from(head) != closed {
        at(head.seq, Reason::Changed)
    } else {
        None
    }
}
