//! The host's index: one chained line when a run opens and one when it closes.
//!
//! The index is what makes a removed run, a cut ledger or a changed last line visible. Its own
//! last line has no successor to vouch for it, so `index.head` beside it promises how far the
//! index reaches. A promise that the index does not keep is never silently replaced by a new one:
//! it is written into the chain as `index.disagreed`, and verification fails from then on.
//!
//! Many supervisors write here: whoever appends holds an exclusive `flock` from reading the tail
//! to keeping the promise, and never while waiting for the disk.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::chain::{self, Head, Line, LineHash, Words};
use crate::promise::{Keeping, PROMISE, Promise};
use crate::state::{Access, StateDir, StateError, lock};
use crate::{Actor, Clock, RunId};

pub(crate) const INDEX: &str = "index.jsonl";
const TORN: &str = "index.torn";

/// What the index says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data")]
pub(crate) enum IndexEvent {
    #[serde(rename = "run.opened")]
    RunOpened {},
    #[serde(rename = "run.closed")]
    RunClosed(Closed),
    /// Bytes that were no entry stood at the end and were moved aside.
    #[serde(rename = "index.recovered")]
    Recovered { torn_bytes: u64 },
    /// The index was not what its promise says: entries at its end were changed or removed.
    #[serde(rename = "index.disagreed")]
    Disagreed { promised: Option<Head> },
}

/// How far a closed run's ledger reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closed {
    pub(crate) head: LineHash,
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl From<Head> for Closed {
    fn from(head: Head) -> Self {
        Self { head: head.hash, lines: head.seq, bytes: head.bytes }
    }
}

/// Why the index could not be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the index of runs cannot be opened")]
    State(#[source] StateError),
    #[error("cannot lock the index of runs")]
    Lock(#[source] io::Error),
    #[error("cannot read the index of runs")]
    Read(#[source] io::Error),
    #[error("cannot write the index of runs")]
    Write(#[source] io::Error),
}

/// Appends one line to the index and gives the file to sync.
pub(crate) fn enter(
    state: &StateDir,
    run: &RunId,
    event: &IndexEvent,
    clock: &Clock,
) -> Result<File, IndexError> {
    let mut index = Index::lock(state, run, clock)?;
    index.append(run, event, clock)?;
    index.unlock()
}

/// The index, held for appending.
struct Index {
    file: Flock<File>,
    promise: File,
    head: Head,
}

impl Index {
    /// Waits for the index and mends its end; what was mended is recorded in the name of `run`.
    fn lock(state: &StateDir, run: &RunId, clock: &Clock) -> Result<Self, IndexError> {
        let file = state.open_top(INDEX, Access::Append).map_err(IndexError::State)?;
        let promise = state.open_top(PROMISE, Access::Overwrite).map_err(IndexError::State)?;
        let file = lock(file, FlockArg::LockExclusiveNonblock).map_err(IndexError::Lock)?;
        let Tail { head, torn } = Tail::read(&file).map_err(IndexError::Read)?;
        let kept = Promise::read(&promise).and_then(|said| said.judge(&file, head));
        let kept = kept.map_err(IndexError::Read)?;
        let mut index = Self { file, promise, head };
        if !torn.is_empty() {
            index.set_aside(state, &torn)?;
            let torn_bytes = torn.len() as u64;
            index.append(run, &IndexEvent::Recovered { torn_bytes }, clock)?;
        }
        if let Keeping::Broken { promised } = kept {
            index.append(run, &IndexEvent::Disagreed { promised }, clock)?;
        }
        Ok(index)
    }

    /// Appends one line and promises it. It is durable once the file that [`Self::unlock`] gives
    /// is synced.
    fn append(&mut self, run: &RunId, event: &IndexEvent, clock: &Clock) -> Result<(), IndexError> {
        let written = self.try_append(run, event, clock);
        written.map_err(IndexError::Write)
    }

    fn try_append(&mut self, run: &RunId, event: &IndexEvent, clock: &Clock) -> io::Result<()> {
        let (event, data) = crate::entry::name_and_data(event)?;
        let (time, run, actor) = (clock.now(), run.clone(), Actor::Ledger);
        let (mut head, mut line) = (self.head, Vec::new());
        chain::append(&mut head, Words { time, run, actor, event, data }, &mut line)?;
        if let Err(cause) = (&*self.file).write_all(&line) {
            // A torn line would only be found by the next run; take back what was written.
            self.file.set_len(self.head.bytes)?;
            return Err(cause);
        }
        self.head = head;
        self.promise.write_all_at(Promise::text(head).as_bytes(), 0)
    }

    /// Lets others in; the file is given back to be synced.
    fn unlock(self) -> Result<File, IndexError> {
        self.file.unlock().map_err(|(_, errno)| IndexError::Lock(errno.into()))
    }

    fn set_aside(&self, state: &StateDir, torn: &[u8]) -> Result<(), IndexError> {
        let mut aside = state.open_top(TORN, Access::Append).map_err(IndexError::State)?;
        aside
            .write_all(torn)
            .and_then(|()| aside.sync_data())
            .and_then(|()| self.file.set_len(self.head.bytes))
            .map_err(IndexError::Write)
    }
}

/// The end of a chain: its head, and what lies behind the last whole entry.
pub(crate) struct Tail {
    pub(crate) head: Head,
    pub(crate) torn: Vec<u8>,
}

impl Tail {
    /// Reads backwards until a whole entry is found, so that a long index costs no more.
    pub(crate) fn read(file: &File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let mut window = 4096;
        loop {
            let start = len.saturating_sub(window);
            let bytes = read_range(file, start, len)?;
            if let Some(tail) = Self::within(start, bytes) {
                return Ok(tail);
            }
            window *= 4;
        }
    }

    /// The tail, if `bytes` from `start` to the end hold all of it.
    pub(crate) fn within(start: u64, mut bytes: Vec<u8>) -> Option<Self> {
        let mut end = memchr::memrchr(b'\n', &bytes).map_or(0, |lf| lf + 1);
        while end > 0 {
            let begin = match memchr::memrchr(b'\n', &bytes[..end - 1]) {
                Some(lf) => lf + 1,
                None if start == 0 => 0,
                None => return None,
            };
            let line = &bytes[begin..end - 1];
            if let Ok(Line { seq, .. }) = serde_json::from_slice(line) {
                let head = Head { seq, hash: LineHash::of(line), bytes: start + end as u64 };
                return Some(Self { head, torn: bytes.split_off(end) });
            }
            end = begin;
        }
        (start == 0).then_some(Self { head: Head::EMPTY, torn: bytes })
    }
}

pub(crate) fn read_range(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(end - start).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// The runs that the index says are open, oldest first.
///
/// This is read at every start, so it looks at each line and parses and hashes none.
pub(crate) fn unclosed(state: &StateDir) -> Result<Vec<RunId>, IndexError> {
    let file = match state.open_top(INDEX, Access::Read) {
        Ok(file) => file,
        Err(missing) if missing.is_missing() => return Ok(Vec::new()),
        Err(error) => return Err(IndexError::State(error)),
    };
    let mut lines = BufReader::with_capacity(64 * 1024, file);
    let (mut line, mut open) = (Vec::new(), HashSet::new());
    while lines.read_until(b'\n', &mut line).map_err(IndexError::Read)? > 0 {
        match glance(&line) {
            Some((run, b"run.opened")) => drop(open.insert(run)),
            Some((run, b"run.closed")) => drop(open.remove(&run)),
            Some(_) | None => {}
        }
        line.clear();
    }
    let names = open.iter().filter_map(|run| str::from_utf8(run).ok()?.parse().ok());
    let mut runs: Vec<RunId> = names.collect();
    runs.sort_unstable();
    Ok(runs)
}

/// The run and the event of a line that we wrote: all in front of the event has a fixed size,
/// except for the sequence number.
fn glance(line: &[u8]) -> Option<([u8; 22], &[u8])> {
    let seq_on = line.strip_prefix(br#"{"seq":"#)?;
    let time_on = seq_on.get(memchr::memchr(b',', seq_on)?..)?.strip_prefix(br#","time":""#)?;
    let run_on = time_on.get(30..)?.strip_prefix(br#"","run":""#)?;
    let (run, rest) = run_on.split_first_chunk()?;
    let event_on = rest.strip_prefix(br#"","actor":"ledger","event":""#)?;
    let event = event_on.get(..memchr::memchr(b'"', event_on)?)?;
    Some((*run, event))
}
