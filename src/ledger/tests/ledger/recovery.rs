//! Recovery: a run that was left open is closed by the next one, whatever its last line is.

use std::fs;
use std::sync::Barrier;
use std::thread;

use kvro_ledger::event::LedgerRecovered;
use kvro_ledger::verify::{Break, Openness, Outcome, Reason, verify_all};
use kvro_ledger::{Event, RunId, recover};

use crate::support::{GUARD, Host, clock, hidden, host, run_id};

/// A run whose supervisor is gone: two entries, and nothing in the index but its opening.
fn abandoned(host: &Host, run: &RunId) -> Vec<u8> {
    let (ledger, recorder) = host.open(run);
    recorder.record_durably(GUARD, hidden("a")).unwrap();
    recorder.record_durably(GUARD, hidden("b")).unwrap();
    let bytes = fs::read(host.state.ledger_path(run)).unwrap();
    // The writer lets go of the file once nobody can send to it any more.
    drop((ledger, recorder));
    while verify_all(&host.state).unwrap().runs.iter().any(|r| r.openness == Openness::Live) {
        thread::yield_now();
    }
    bytes
}

fn recovered(host: &Host) -> Vec<(RunId, LedgerRecovered)> {
    let all = recover(&host.state, &clock()).unwrap().into_iter();
    all.map(|one| (one.run, one.outcome.unwrap())).collect()
}

#[test]
fn a_run_left_open_is_closed_and_that_is_recorded() {
    let (host, run) = (host(), run_id(1));
    abandoned(&host, &run);
    let event = LedgerRecovered { recovered_run: run.to_string(), torn_bytes: 0, last_seq: 2 };
    assert_eq!(recovered(&host), [(run.clone(), event.clone())]);
    let expected = [(1, hidden("a")), (2, hidden("b")), (3, Event::LedgerRecovered(event))];
    assert_eq!(host.events(&run), expected);
    let found = verify_all(&host.state).unwrap();
    assert_eq!((found.outcome(), found.runs[0].openness), (Outcome::Intact, Openness::Closed));
    assert_eq!(recovered(&host), [], "once");
}

#[test]
fn a_line_torn_at_any_byte_is_moved_aside_and_the_rest_verifies() {
    let host = host();
    let mut salt = 0;
    let mut whole = abandoned(&host, &run_id(salt));
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    // Every seventh cut, and the ends: each takes a run of its own.
    for cut in (first + 1..whole.len()).step_by(7).chain([whole.len() - 1]) {
        salt += 1;
        let run = run_id(salt);
        whole = abandoned(&host, &run);
        let path = host.state.ledger_path(&run);
        fs::write(&path, &whole[..cut]).unwrap();
        let torn = verify_all(&host.state).unwrap();
        let broken = torn.runs.iter().find(|r| r.run == run).unwrap().soundness.broken();
        assert_eq!(broken, Some(Break { seq: 2, reason: Reason::TornTail }), "{cut}");
        recovered(&host);
        let torn_bytes = (cut - first) as u64;
        let event = LedgerRecovered { recovered_run: run.to_string(), torn_bytes, last_seq: 1 };
        let expected = [(1, hidden("a")), (2, Event::LedgerRecovered(event))];
        assert_eq!(host.events(&run), expected, "{cut}");
        let aside = fs::read(host.state.run_dir(&run).join("torn")).unwrap();
        assert_eq!(aside, &whole[first..cut]);
    }
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}

#[test]
fn last_lines_that_are_no_entries_are_moved_aside_too() {
    let (host, run) = (host(), run_id(1));
    let mut bytes = abandoned(&host, &run);
    // What a disk may show after the power went: blocks of zeros, with a line feed by chance.
    bytes.extend_from_slice(&[0; 600]);
    bytes.extend_from_slice(b"\n{}\n\0\0");
    fs::write(host.state.ledger_path(&run), &bytes).unwrap();
    let event = LedgerRecovered { recovered_run: run.to_string(), torn_bytes: 606, last_seq: 2 };
    assert_eq!(recovered(&host), [(run, event)]);
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}

#[test]
fn a_run_that_recorded_nothing_is_closed_too() {
    let (host, run) = (host(), run_id(1));
    abandoned(&host, &run);
    fs::write(host.state.ledger_path(&run), "").unwrap();
    let event = LedgerRecovered { recovered_run: run.to_string(), torn_bytes: 0, last_seq: 0 };
    assert_eq!(recovered(&host), [(run, event)]);
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}

#[test]
fn recoveries_at_the_same_time_close_each_run_once() {
    let host = host();
    (0..40).for_each(|salt| drop(abandoned(&host, &run_id(salt))));
    let barrier = Barrier::new(4);
    let count = || {
        barrier.wait();
        recovered(&host).len()
    };
    let closed: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(closed, 40);
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}

#[test]
fn a_live_run_is_left_alone() {
    let (host, run) = (host(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    recorder.record_durably(GUARD, hidden("a")).unwrap();
    assert_eq!(recovered(&host), []);
    ledger.close().unwrap();
    assert_eq!(host.events(&run), [(1, hidden("a"))]);
}

#[test]
fn a_chain_that_was_broken_on_purpose_stays_broken() {
    let (host, run) = (host(), run_id(1));
    let bytes = abandoned(&host, &run);
    let changed = String::from_utf8(bytes).unwrap().replace(r#""path":"a""#, r#""path":"x""#);
    fs::write(host.state.ledger_path(&run), changed).unwrap();
    assert_eq!(recovered(&host).len(), 1);
    let found = verify_all(&host.state).unwrap();
    assert_eq!(found.runs[0].soundness.broken(), Some(Break { seq: 1, reason: Reason::Changed }));
}

#[test]
fn a_removed_run_cannot_be_recovered_and_stays_missing() {
    let (host, run) = (host(), run_id(1));
    abandoned(&host, &run);
    fs::remove_dir_all(host.state.run_dir(&run)).unwrap();
    let tried = recover(&host.state, &clock()).unwrap();
    assert!(matches!(&tried[..], [one] if one.outcome.is_err()), "{tried:?}");
    let found = verify_all(&host.state).unwrap();
    let missing = Break { seq: 1, reason: Reason::LedgerMissing };
    assert_eq!(found.runs[0].soundness.broken(), Some(missing));
}

#[test]
fn a_torn_index_is_mended_and_that_is_recorded() {
    let (host, run) = (host(), run_id(1));
    host.open(&run).0.close().unwrap();
    let index = host.path.join("index.jsonl");
    let mut bytes = fs::read(&index).unwrap();
    bytes.extend_from_slice(b"{\"seq\":3,\"ti");
    fs::write(&index, &bytes).unwrap();
    let torn = verify_all(&host.state).unwrap();
    assert_eq!(torn.index.broken(), Some(Break { seq: 3, reason: Reason::TornTail }));
    host.open(&run_id(2)).0.close().unwrap();
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
    assert_eq!(fs::read(host.path.join("index.torn")).unwrap(), b"{\"seq\":3,\"ti");
    let index = fs::read_to_string(&index).unwrap();
    assert!(index.contains(r#""event":"index.recovered""#), "{index}");
}

#[test]
fn a_cut_index_is_never_made_good_by_the_next_run() {
    let host = host();
    host.open(&run_id(1)).0.close().unwrap();
    host.open(&run_id(2)).0.close().unwrap();
    let index = host.path.join("index.jsonl");
    let lines: Vec<_> = fs::read_to_string(&index).unwrap().lines().map(str::to_owned).collect();
    fs::write(&index, lines[..2].join("\n") + "\n").unwrap();
    let cut = verify_all(&host.state).unwrap();
    assert_eq!(cut.index.broken(), Some(Break { seq: 3, reason: Reason::PromiseBroken }));
    host.open(&run_id(3)).0.close().unwrap();
    let later = verify_all(&host.state).unwrap();
    assert_eq!(later.index.broken(), Some(Break { seq: 3, reason: Reason::Disagreed }));
}

#[test]
fn a_writer_that_died_before_its_promise_broke_nothing() {
    let host = host();
    host.open(&run_id(1)).0.close().unwrap();
    let promise = fs::read(host.path.join("index.head")).unwrap();
    host.open(&run_id(2)).0.close().unwrap();
    fs::write(host.path.join("index.head"), promise).unwrap();
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
    host.open(&run_id(3)).0.close().unwrap();
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}
