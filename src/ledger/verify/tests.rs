//! What breaks a ledger, and that a sound one is not called broken.

use jiff::Timestamp;

use crate::event::{EgressClosed, HiddenOpened};
use crate::verify::{Openness, Outcome, verify_all};
use crate::{Actor, Clock, Event, Head, Ledger, Recorder, Redactions, RunId, StateDir};

fn run_id(salt: u32) -> RunId {
    RunId::new("2026-11-30T16:12:00Z".parse().unwrap(), salt)
}

fn open(state: &StateDir, run: &RunId) -> (Ledger, Recorder) {
    let clock = Clock::new(|| Timestamp::from_second(1_796_055_120).unwrap());
    Ledger::open(state, run.clone(), clock, Redactions::none()).unwrap()
}

/// A closed run whose strings need escapes.
fn write_run(state: &StateDir, run: &RunId) -> Head {
    let (ledger, recorder) = open(state, run);
    for path in [
        ".env",
        "a \"b\" \\ c",
        "\u{202e}gnp.exe\n\u{1b}[2J",
        "naïve/ÿ",
    ] {
        let event = Event::HiddenOpened(HiddenOpened {
            path: path.to_owned(),
        });
        recorder.record(Actor::Guard, event);
    }
    let closed = EgressClosed {
        connection: 1,
        bytes_sent: u64::MAX,
        bytes_received: 0,
        duration_ms: 7,
    };
    recorder.record(Actor::Proxy, Event::EgressClosed(closed));
    ledger.close().unwrap()
}

#[test]
fn what_was_written_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(&dir.path().join("kvro-jail")).unwrap();
    let head = write_run(&state, &run_id(1));
    write_run(&state, &run_id(2));
    let all = verify_all(&state).unwrap();
    assert_eq!(all.outcome(), Outcome::Intact, "{all:?}");
    let found: Vec<_> = all
        .runs
        .iter()
        .map(|r| (r.run.clone(), r.entries, r.openness))
        .collect();
    let closed = |salt| (run_id(salt), head.seq, Openness::Closed);
    assert_eq!(found, [closed(1), closed(2)]);
}
