//! Recovery: closes the ledgers of runs whose supervisor died before it could.
//!
//! Done by the next run, never by verification. What cannot be an entry is moved aside, not
//! thrown away, and that it was is an entry itself. Recovery judges the form of the last lines
//! only: a chain that was broken on purpose stays broken, and verification says so.

use std::fs::File;
use std::io::{self, Write};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::chain::{self, Head, Words};
use crate::event::LedgerRecovered;
use crate::index::{self, Closed, IndexError, IndexEvent, Tail, enter};
use crate::state::{Access, StateDir, StateError};
use crate::{Actor, Clock, Event, RunId};

/// Where torn bytes go, beside the ledger they were torn from.
const TORN: &str = "torn";

/// What became of a run that was left open.
#[derive(Debug)]
pub struct Recovered {
    pub run: RunId,
    pub outcome: Result<LedgerRecovered, RecoverError>,
}

/// Why a run stays open.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("its files cannot be used")]
    State(#[source] StateError),
    #[error("cannot read or mend its ledger")]
    Mend(#[source] io::Error),
    #[error("its end cannot be entered in the index")]
    Index(#[source] IndexError),
}

/// Closes every run that the index says is open and that nobody writes.
///
/// With nothing to recover this costs one look over the index.
pub fn recover(state: &StateDir, clock: &Clock) -> Result<Vec<Recovered>, IndexError> {
    recover_with(state, clock, |_| Vec::new())
}

/// [`recover`]; what `last_words` gives for a run is recorded in its ledger before that is closed.
///
/// It is asked while nobody else can recover the run.
pub fn recover_with(
    state: &StateDir,
    clock: &Clock,
    mut last_words: impl FnMut(&RunId) -> Vec<(Actor, Event)>,
) -> Result<Vec<Recovered>, IndexError> {
    let mut recovered = Vec::new();
    for run in index::unclosed(state)? {
        let outcome = match recover_run(state, &run, clock, &mut last_words) {
            Ok(None) => continue,
            Ok(Some(event)) => Ok(event),
            Err(error) => Err(error),
        };
        recovered.push(Recovered { run, outcome });
    }
    Ok(recovered)
}

/// Recovers `run`, unless it is alive.
fn recover_run(
    state: &StateDir,
    run: &RunId,
    clock: &Clock,
    last_words: &mut dyn FnMut(&RunId) -> Vec<(Actor, Event)>,
) -> Result<Option<LedgerRecovered>, RecoverError> {
    let file = state.open_ledger(run, Access::Mend).map_err(RecoverError::State)?;
    let Some(file) = try_lock(file).map_err(RecoverError::Mend)? else {
        return Ok(None);
    };
    // Between our look at the index and our lock its writer, or another recovery, may have
    // closed it.
    if !index::unclosed(state).map_err(RecoverError::Index)?.contains(run) {
        return Ok(None);
    }
    let Tail { head, torn } = Tail::read(&file).map_err(RecoverError::Mend)?;
    if !torn.is_empty() {
        let mut aside = state.append_beside(run, TORN).map_err(RecoverError::State)?;
        let kept = aside.write_all(&torn).and_then(|()| aside.sync_data());
        kept.map_err(RecoverError::Mend)?;
    }
    // Also where nothing was torn: blocks that the writer had reserved are given back.
    file.set_len(head.bytes).map_err(RecoverError::Mend)?;
    let event = LedgerRecovered {
        recovered_run: run.to_string(),
        torn_bytes: torn.len() as u64,
        last_seq: head.seq,
    };
    let recovered = (Actor::Ledger, Event::LedgerRecovered(event.clone()));
    let events = [recovered].into_iter().chain(last_words(run));
    let head = append(&file, head, run, events, clock).map_err(RecoverError::Mend)?;
    enter(state, run, &IndexEvent::RunClosed(Closed::from(head)), clock)
        .and_then(|index| index.sync_data().map_err(IndexError::Write))
        .map_err(RecoverError::Index)?;
    Ok(Some(event))
}

fn try_lock(file: File) -> io::Result<Option<Flock<File>>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => Ok(Some(locked)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

fn append(
    mut file: &File,
    mut head: Head,
    run: &RunId,
    events: impl Iterator<Item = (Actor, Event)>,
    clock: &Clock,
) -> io::Result<Head> {
    let mut lines = Vec::new();
    for (actor, event) in events {
        let (event, data) = crate::entry::name_and_data(&event)?;
        let (time, run) = (clock.now(), run.clone());
        chain::append(&mut head, Words { time, run, actor, event, data }, &mut lines)?;
    }
    file.write_all(&lines)?;
    file.sync_data()?;
    Ok(head)
}
