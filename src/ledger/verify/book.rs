//! The index as verification reads it: is it sound, and what does it say of each run?

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use nix::fcntl::FlockArg;
use serde_json::json;

use crate::RunId;
use crate::chain::{Head, Line};
use crate::index::{Closed, INDEX, IndexError, IndexEvent};
use crate::promise::{Keeping, PROMISE, Promise};
use crate::state::{Access, StateDir, lock};
use crate::verify::walk::Walk;
use crate::verify::{Break, Reason, Soundness};

/// What the index says.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) runs: BTreeMap<RunId, Option<Closed>>,
    pub(super) soundness: Soundness<IndexError>,
}

impl Book {
    pub(super) fn read(state: &StateDir) -> Self {
        let mut runs = BTreeMap::new();
        let soundness = match read(state, &mut runs) {
            Ok(None) => Soundness::Intact,
            Ok(Some(at)) => Soundness::Broken(at),
            Err(error) => Soundness::Unreadable(error),
        };
        Self { runs, soundness }
    }
}

type Runs = BTreeMap<RunId, Option<Closed>>;

fn read(state: &StateDir, runs: &mut Runs) -> Result<Option<Break>, IndexError> {
    let index = match state.open_top(INDEX, Access::Read) {
        Ok(file) => file,
        Err(missing) if missing.is_missing() => return without_index(state),
        Err(error) => return Err(IndexError::State(error)),
    };
    // Shared: supervisors wait for us, other readers do not.
    let index = lock(index, FlockArg::LockSharedNonblock).map_err(IndexError::Lock)?;
    let (walk, torn) = walk(&index, runs).map_err(IndexError::Read)?;
    let promise = promise(state)?;
    let len = index.metadata().map_err(IndexError::Read)?.len();
    if let Some(at) = walk.end(promise.hash_at(len)) {
        return Ok(Some(at));
    }
    if !torn.is_empty() {
        return Ok(Some(Break { seq: walk.head().seq + 1, reason: Reason::TornTail }));
    }
    let kept = promise.judge(&index, walk.head()).map_err(IndexError::Read)?;
    Ok(unkept(kept, walk.head()))
}

/// Without an index there may be no promise either.
fn without_index(state: &StateDir) -> Result<Option<Break>, IndexError> {
    match state.open_top(PROMISE, Access::Read) {
        Ok(_) => Ok(Some(Break { seq: 1, reason: Reason::PromiseBroken })),
        Err(missing) if missing.is_missing() => Ok(None),
        Err(error) => Err(IndexError::State(error)),
    }
}

fn walk(index: &File, runs: &mut Runs) -> io::Result<(Walk, Vec<u8>)> {
    let (mut walk, mut reader) = (Walk::new(), BufReader::new(index));
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.read_until(b'\n', &mut line)?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            return Ok((walk, line));
        }
        if let Some(read) = walk.step(&line) {
            let seq = read.seq;
            if let Err(reason) = enter(runs, read) {
                walk.break_at(seq, reason);
            }
        }
    }
}

/// Takes in one sound line. An event that this version does not know says nothing of a run.
fn enter(runs: &mut Runs, line: Line) -> Result<(), Reason> {
    let Line { run, event, data, .. } = line;
    match serde_json::from_value(json!({"event": event, "data": data})) {
        Ok(IndexEvent::RunOpened {}) => match runs.insert(run, None) {
            None => Ok(()),
            Some(_) => Err(Reason::OpenedTwice),
        },
        Ok(IndexEvent::RunClosed(closed)) => match runs.get_mut(&run) {
            None => Err(Reason::ClosedUnopened),
            Some(Some(_)) => Err(Reason::ClosedTwice),
            Some(end) => {
                *end = Some(closed);
                Ok(())
            }
        },
        Ok(IndexEvent::Disagreed { .. }) => Err(Reason::Disagreed),
        Ok(IndexEvent::Recovered { .. }) | Err(_) => Ok(()),
    }
}

fn promise(state: &StateDir) -> Result<Promise, IndexError> {
    match state.open_top(PROMISE, Access::Read) {
        Ok(file) => Promise::read(&file).map_err(IndexError::Read),
        Err(missing) if missing.is_missing() => Ok(Promise::Nothing),
        Err(error) => Err(IndexError::State(error)),
    }
}

fn unkept(kept: Keeping, head: Head) -> Option<Break> {
    let Keeping::Broken { promised } = kept else {
        return None;
    };
    // As far as the promise went and the index does not, entries are missing; where both reach
    // equally far, the last one was changed.
    let seq = match promised {
        Some(promised) if promised.seq > head.seq => head.seq + 1,
        Some(promised) => promised.seq,
        None => head.seq,
    };
    Some(Break { seq, reason: Reason::PromiseBroken })
}
