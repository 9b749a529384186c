//! A state directory of a test's own, and runs in it.

use std::path::PathBuf;

use jiff::Timestamp;
use kvro_ledger::event::{DnsRefused, EndedBy, HiddenOpened, RunEnded};
use kvro_ledger::read::entries;
use kvro_ledger::{Actor, Clock, Entry, Event, Ledger, Recorder, Redactions, RunId, StateDir};
use tempfile::TempDir;

pub(crate) const TIME: &str = "2026-11-30T16:12:00.123456789Z";

pub(crate) struct Host {
    // Held until the test is over.
    _dir: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) state: StateDir,
}

pub(crate) fn host() -> Host {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state").join("kvro-jail");
    let state = StateDir::open(&path).unwrap();
    Host { _dir: dir, path, state }
}

impl Host {
    pub(crate) fn open(&self, run: &RunId) -> (Ledger, Recorder) {
        Ledger::open(&self.state, run.clone(), clock(), Redactions::none()).unwrap()
    }

    pub(crate) fn entries(&self, run: &RunId) -> Vec<Entry> {
        entries(&self.state, run).unwrap()
    }

    /// The known events of a run with their sequence numbers.
    pub(crate) fn events(&self, run: &RunId) -> Vec<(u64, Event)> {
        let entries = self.entries(run).into_iter();
        entries.map(|entry| (entry.seq, entry.known().unwrap().clone())).collect()
    }
}

pub(crate) fn clock() -> Clock {
    Clock::new(|| TIME.parse().unwrap())
}

pub(crate) fn run_id(salt: u32) -> RunId {
    RunId::new(TIME.parse::<Timestamp>().unwrap(), salt)
}

pub(crate) fn hidden(path: &str) -> Event {
    Event::HiddenOpened(HiddenOpened { path: path.to_owned() })
}

pub(crate) fn refused(name: &str) -> Event {
    Event::DnsRefused(DnsRefused {
        name: name.to_owned(),
        kind: "A".to_owned(),
        reason: "not_listed".to_owned(),
    })
}

pub(crate) fn ended() -> Event {
    Event::RunEnded(RunEnded {
        exit_code: 0,
        ended_by: EndedBy::Exit,
        reason: String::new(),
        duration_ms: 7,
    })
}

pub(crate) const GUARD: Actor = Actor::Guard;
