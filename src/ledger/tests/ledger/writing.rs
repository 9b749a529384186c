//! Writing: order, durability, repetition, redaction.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use jiff::Timestamp;
use kvro_ledger::event::Repeated;
use kvro_ledger::verify::{Openness, Outcome, verify_all, verify_run};
use kvro_ledger::{Actor, Clock, Event, Ledger, LineHash, RecordError, Recorder, Redactions};

use crate::support::{GUARD, TIME, ended, hidden, host, refused, run_id};

#[test]
fn what_is_recorded_is_on_disk_in_order_once_closed() {
    let (host, run) = (host(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    recorder.record(GUARD, hidden("a"));
    assert_eq!(recorder.record_durably(GUARD, hidden("b")).unwrap(), 2);
    recorder.record(Actor::Supervisor, ended());
    let head = ledger.close().unwrap();
    assert_eq!(host.events(&run), [(1, hidden("a")), (2, hidden("b")), (3, ended())]);
    let bytes = fs::read(host.state.ledger_path(&run)).unwrap();
    let last = bytes.strip_suffix(b"\n").unwrap().rsplit(|byte| *byte == b'\n').next().unwrap();
    assert_eq!((head.seq, head.bytes, head.hash), (3, bytes.len() as u64, LineHash::of(last)));
}

#[test]
fn a_durable_entry_can_be_read_while_the_run_is_open() {
    let (host, run) = (host(), run_id(1));
    let (_ledger, recorder) = host.open(&run);
    recorder.record_durably(GUARD, hidden("a")).unwrap();
    assert_eq!(host.events(&run), [(1, hidden("a"))]);
    let found = verify_run(&host.state, &run);
    assert_eq!((found.outcome(), found.runs[0].openness), (Outcome::Intact, Openness::Live));
}

#[test]
fn callers_on_many_threads_each_get_their_own_entry() {
    let (host, run) = (host(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    let record = |thread: u32| {
        let recorder = recorder.clone();
        move || -> Vec<(u64, Event)> {
            let paths = (0..20).map(|n| hidden(&format!("{thread}/{n}")));
            paths.map(|e| (recorder.record_durably(GUARD, e.clone()).unwrap(), e)).collect()
        }
    };
    let threads: Vec<_> = (0..8).map(|n| thread::spawn(record(n))).collect();
    let mut told: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    ledger.close().unwrap();
    told.sort_unstable_by_key(|(seq, _)| *seq);
    assert_eq!(host.events(&run), told);
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}

#[test]
fn a_flood_of_refusals_stays_small_and_every_one_is_counted() {
    let (host, run) = (host(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    for n in 0..100_000 {
        recorder.record(Actor::Proxy, refused(&format!("{}.denied.example", n % 500)));
    }
    let head = ledger.close().unwrap();
    assert!(head.bytes < 5_000_000, "{head:?}");
    let (mut names, mut counts) = (HashMap::new(), HashMap::new());
    for (seq, event) in host.events(&run) {
        if let Event::Repeated(Repeated { of_seq, count, .. }) = event {
            *counts.get_mut(&names[&of_seq]).unwrap() += count;
        } else if let Event::DnsRefused(refused) = event {
            assert_eq!(names.insert(seq, refused.name.clone()), None);
            assert_eq!(counts.insert(refused.name, 1), None, "written twice");
        }
    }
    assert_eq!(counts.len(), 500);
    assert!(counts.values().all(|count| *count == 200), "{counts:?}");
}

#[test]
fn an_event_somebody_waits_for_is_written_even_if_it_repeats() {
    let (host, run) = (host(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    recorder.record(GUARD, hidden("a"));
    assert_eq!(recorder.record_durably(GUARD, hidden("a")).unwrap(), 2);
    ledger.close().unwrap();
    assert_eq!(host.events(&run), [(1, hidden("a")), (2, hidden("a"))]);
}

#[test]
fn a_known_secret_never_reaches_the_disk() {
    let (host, run) = (host(), run_id(1));
    let secret = "sk-test-0123456789abcdef";
    let redactions = Redactions::new([("API_KEY", secret.as_bytes())]).unwrap();
    let (ledger, recorder) =
        Ledger::open(&host.state, run.clone(), Clock::system(), redactions).unwrap();
    recorder.record(GUARD, hidden(&format!("/tmp/{secret}")));
    ledger.close().unwrap();
    assert_eq!(host.events(&run), [(1, hidden("/tmp/[redacted:API_KEY]"))]);
    let bytes = fs::read_to_string(host.state.ledger_path(&run)).unwrap();
    assert!(!bytes.contains(secret));
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}

#[test]
fn a_clock_that_runs_backwards_breaks_nothing() {
    let (host, run) = (host(), run_id(1));
    let seconds = AtomicI64::new(1_796_055_120);
    let back = Clock::new(move || {
        Timestamp::from_second(seconds.fetch_sub(3600, Ordering::Relaxed)).unwrap()
    });
    let (ledger, recorder) =
        Ledger::open(&host.state, run.clone(), back, Redactions::none()).unwrap();
    recorder.record(GUARD, hidden("a"));
    recorder.record(GUARD, hidden("b"));
    ledger.close().unwrap();
    let times: Vec<_> = host.entries(&run).iter().map(|entry| entry.time).collect();
    assert!(times[0] > times[1], "{times:?}");
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Intact);
}

#[test]
fn runs_at_the_same_time_keep_the_index_whole() {
    let host = host();
    let run = |salt| {
        let (state, run) = (host.state.clone(), run_id(salt));
        move || {
            let clock = Clock::system();
            let (ledger, recorder) = Ledger::open(&state, run, clock, Redactions::none()).unwrap();
            recorder.record(GUARD, hidden("a"));
            ledger.close().unwrap();
        }
    };
    let threads: Vec<_> = (0..16).map(|salt| thread::spawn(run(salt))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let found = verify_all(&host.state).unwrap();
    assert_eq!(found.outcome(), Outcome::Intact, "{found:?}");
    assert_eq!(found.runs.len(), 16);
    assert!(found.runs.iter().all(|run| run.openness == Openness::Closed));
}

#[test]
fn after_the_close_a_record_is_refused_and_told() {
    let (host, run) = (host(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    ledger.close().unwrap();
    assert!(recorder.failure().is_none());
    let refused = recorder.record_durably(GUARD, hidden("late"));
    assert!(matches!(refused, Err(RecordError::Closed)), "{refused:?}");
    assert!(matches!(recorder.failure(), Some(RecordError::Closed)));
    assert_eq!(host.events(&run), []);
}

#[test]
fn a_run_name_is_used_once() {
    let (host, run) = (host(), run_id(1));
    let _first = host.open(&run);
    Ledger::open(&host.state, run, Clock::system(), Redactions::none()).unwrap_err();
}

#[test]
fn a_recorder_to_memory_keeps_each_event_and_can_be_filled() {
    let (recorder, memory) = Recorder::to_memory();
    recorder.record(GUARD, hidden("a"));
    assert_eq!(recorder.record_durably(GUARD, hidden("a")).unwrap(), 2);
    assert_eq!(memory.events(), [(GUARD, hidden("a")), (GUARD, hidden("a"))]);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    recorder.on_failure(move |error| tell.send(error.to_string()).unwrap());
    memory.fill();
    assert_eq!(told.recv().unwrap(), "cannot write the ledger");
    assert!(matches!(recorder.record_durably(GUARD, hidden("b")), Err(RecordError::Write(_))));
    assert_eq!(memory.events().len(), 2);
}

#[test]
fn the_index_says_when_a_run_opened_and_how_it_closed() {
    let (host, run) = (host(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    recorder.record(GUARD, hidden("a"));
    let head = ledger.close().unwrap();
    let index = fs::read_to_string(host.path.join("index.jsonl")).unwrap();
    let none = LineHash::NONE;
    let opened = format!(
        r#"{{"seq":1,"time":"{TIME}","run":"{run}","actor":"ledger","event":"run.opened","prev":"{none}","data":{{}}}}"#
    );
    let closed = format!(
        r#"{{"seq":2,"time":"{TIME}","run":"{run}","actor":"ledger","event":"run.closed","prev":"{}","data":{{"bytes":{},"head":"{}","lines":1}}}}"#,
        LineHash::of(opened.as_bytes()),
        head.bytes,
        head.hash
    );
    assert_eq!(index, format!("{opened}\n{closed}\n"));
}
