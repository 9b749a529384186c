//! What breaks a ledger, and that a sound one is not called broken.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use proptest::prelude::*;

use crate::event::{EgressClosed, HiddenOpened};
use crate::verify::{Break, Openness, Outcome, Reason, verify_all, verify_run};
use crate::{Actor, Clock, Event, Head, Ledger, Recorder, Redactions, RunId, StateDir};

struct Host {
    // Held until the test is over.
    _dir: tempfile::TempDir,
    state: StateDir,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("kvro-jail")).unwrap();
        Self { _dir: dir, state }
    }

    fn open(&self, run: &RunId) -> (Ledger, Recorder) {
        let clock = Clock::new(|| Timestamp::from_second(1_796_055_120).unwrap());
        Ledger::open(&self.state, run.clone(), clock, Redactions::none()).unwrap()
    }

    /// A closed run of `paths` and one more entry.
    fn write(&self, run: &RunId, paths: &[&str]) -> Head {
        let (ledger, recorder) = self.open(run);
        for path in paths {
            let event = Event::HiddenOpened(HiddenOpened { path: (*path).to_owned() });
            recorder.record(Actor::Guard, event);
        }
        recorder.record(Actor::Proxy, largest());
        ledger.close().unwrap()
    }

    fn index(&self) -> PathBuf {
        self.state.path().join("index.jsonl")
    }

    fn broken(&self, run: &RunId) -> Option<Break> {
        verify_run(&self.state, run).runs[0].soundness.broken()
    }

    fn broken_index(&self) -> Option<Break> {
        verify_all(&self.state).unwrap().index.broken()
    }
}

fn run_id(salt: u32) -> RunId {
    RunId::new("2026-11-30T16:12:00Z".parse().unwrap(), salt)
}

fn largest() -> Event {
    Event::EgressClosed(EgressClosed {
        connection: u64::MAX,
        bytes_sent: 1 << 63,
        bytes_received: 0,
        duration_ms: 7,
    })
}

/// Paths whose strings need escapes, or end a terminal's line, or are not all of one script.
const PATHS: [&str; 4] = [".env", "a \"b\" \\ c", "\u{202e}gnp.exe\n\u{1b}[2J", "naïve/ÿ"];

fn lines(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// The sequence number of the line that holds byte `at`.
fn seq_of(bytes: &[u8], at: usize) -> u64 {
    1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64
}

#[test]
fn what_was_written_verifies() {
    let host = Host::new();
    let head = host.write(&run_id(1), &PATHS);
    host.write(&run_id(2), &PATHS);
    let all = verify_all(&host.state).unwrap();
    assert_eq!(all.outcome(), Outcome::Intact, "{all:?}");
    let found: Vec<_> = all.runs.iter().map(|r| (r.run.clone(), r.entries, r.openness)).collect();
    let closed = |salt| (run_id(salt), head.seq, Openness::Closed);
    assert_eq!(found, [closed(1), closed(2)]);
}

#[test]
fn any_flipped_byte_of_a_closed_ledger_is_found_at_its_entry() {
    let (host, run) = (Host::new(), run_id(1));
    host.write(&run, &PATHS);
    let path = host.state.ledger_path(&run);
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&path, &changed).unwrap();
        let found = host.broken(&run).map(|broken| broken.seq);
        assert_eq!(found, Some(seq_of(&bytes, at)), "byte {at}: {:?}", host.broken(&run));
    }
}

#[test]
fn any_flipped_byte_of_the_index_or_its_promise_is_found() {
    let host = Host::new();
    host.write(&run_id(1), &[]);
    host.write(&run_id(2), &[]);
    for path in [host.index(), host.state.path().join("index.head")] {
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            fs::write(&path, &changed).unwrap();
            let found = host.broken_index();
            assert!(found.is_some(), "{} byte {at}", path.display());
            if path == host.index() {
                assert_eq!(found.map(|b| b.seq), Some(seq_of(&bytes, at)), "byte {at}: {found:?}");
            }
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(host.broken_index(), None);
}

#[test]
fn a_ledger_cut_at_any_byte_is_found_at_the_first_missing_entry() {
    let (host, run) = (Host::new(), run_id(1));
    host.write(&run, &PATHS);
    let path = host.state.ledger_path(&run);
    let bytes = fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let clean = cut == 0 || bytes[cut - 1] == b'\n';
        let reason = if clean { Reason::CutTail } else { Reason::TornTail };
        let seq = seq_of(&bytes, cut);
        assert_eq!(host.broken(&run), Some(Break { seq, reason }), "cut at {cut}");
    }
}

#[test]
fn an_index_cut_at_any_byte_is_found() {
    let host = Host::new();
    host.write(&run_id(1), &[]);
    host.write(&run_id(2), &[]);
    let bytes = fs::read(host.index()).unwrap();
    for cut in 0..bytes.len() {
        fs::write(host.index(), &bytes[..cut]).unwrap();
        let found = host.broken_index().map(|broken| broken.seq);
        assert_eq!(found, Some(seq_of(&bytes, cut)), "cut at {cut}");
    }
    fs::remove_file(host.index()).unwrap();
    let gone = Break { seq: 1, reason: Reason::PromiseBroken };
    assert_eq!(host.broken_index(), Some(gone));
}

#[test]
fn any_removed_line_is_found_by_its_number() {
    let (host, run) = (Host::new(), run_id(1));
    host.write(&run, &PATHS);
    let path = host.state.ledger_path(&run);
    let whole = lines(&path);
    for gone in 0..whole.len() {
        let mut rest = whole.clone();
        rest.remove(gone);
        fs::write(&path, rest.concat()).unwrap();
        let last = gone + 1 == whole.len();
        let reason = if last { Reason::CutTail } else { Reason::Missing };
        assert_eq!(host.broken(&run), Some(Break { seq: gone as u64 + 1, reason }));
    }
}

#[test]
fn moved_doubled_and_added_lines_are_found() {
    let (host, run) = (Host::new(), run_id(1));
    host.write(&run, &PATHS);
    let path = host.state.ledger_path(&run);
    let whole = lines(&path);
    let broken = |lines: Vec<Vec<u8>>| {
        fs::write(&path, lines.concat()).unwrap();
        host.broken(&run)
    };
    let mut moved = whole.clone();
    moved.swap(1, 3);
    assert_eq!(broken(moved), Some(Break { seq: 2, reason: Reason::OutOfOrder }));
    let mut doubled = whole.clone();
    doubled.insert(2, whole[1].clone());
    assert_eq!(broken(doubled), Some(Break { seq: 3, reason: Reason::OutOfOrder }));
    let mut added = whole.clone();
    added.push(b"{}".to_vec());
    assert_eq!(broken(added), Some(Break { seq: 6, reason: Reason::AfterTheEnd }));
    assert_eq!(broken(whole), None);
}

#[test]
fn an_entry_that_was_added_with_a_right_chain_is_after_the_end() {
    let (host, run) = (Host::new(), run_id(1));
    let mut head = host.write(&run, &PATHS);
    let path = host.state.ledger_path(&run);
    let mut bytes = fs::read(&path).unwrap();
    let (event, data) = crate::entry::name_and_data(&largest()).unwrap();
    let (time, actor) = (Timestamp::UNIX_EPOCH, Actor::Proxy);
    let words = crate::chain::Words { time, run: run.clone(), actor, event, data };
    crate::chain::append(&mut head, words, &mut bytes).unwrap();
    fs::write(&path, bytes).unwrap();
    assert_eq!(host.broken(&run), Some(Break { seq: 6, reason: Reason::AfterTheEnd }));
}

#[test]
fn a_ledger_rewritten_with_a_right_chain_is_found_by_the_index() {
    let (host, other) = (Host::new(), Host::new());
    host.write(&run_id(1), &PATHS);
    other.write(&run_id(1), &["a", "b", "c", "d"]);
    let forged = other.state.ledger_path(&run_id(1));
    fs::copy(forged, host.state.ledger_path(&run_id(1))).unwrap();
    assert_eq!(host.broken(&run_id(1)), Some(Break { seq: 5, reason: Reason::Changed }));
}

#[test]
fn a_ledger_of_another_run_is_found() {
    let host = Host::new();
    host.write(&run_id(1), &PATHS);
    host.write(&run_id(2), &PATHS);
    let (one, two) = (host.state.ledger_path(&run_id(1)), host.state.ledger_path(&run_id(2)));
    fs::copy(one, two).unwrap();
    assert_eq!(host.broken(&run_id(2)), Some(Break { seq: 1, reason: Reason::OfAnotherRun }));
}

#[test]
fn a_removed_run_is_missing_and_an_unknown_one_is_named() {
    let (host, other) = (Host::new(), Host::new());
    host.write(&run_id(1), &PATHS);
    host.write(&run_id(2), &PATHS);
    fs::remove_dir_all(host.state.run_dir(&run_id(1))).unwrap();
    other.write(&run_id(3), &PATHS);
    fs::rename(other.state.run_dir(&run_id(3)), host.state.run_dir(&run_id(3))).unwrap();
    let found = verify_all(&host.state).unwrap();
    let broken: Vec<_> = found.runs.iter().map(|run| run.soundness.broken()).collect();
    let at = |reason| Some(Break { seq: 1, reason });
    assert_eq!(broken, [at(Reason::LedgerMissing), None, at(Reason::NotInTheIndex)]);
    assert_eq!(found.outcome(), Outcome::Broken);
    assert_eq!(verify_run(&host.state, &run_id(4)).outcome(), Outcome::Unreadable);
}

#[test]
fn a_run_that_is_opened_or_closed_twice_breaks_the_index() {
    let host = Host::new();
    host.write(&run_id(1), &[]);
    let again = |event| {
        let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
        crate::index::enter(&host.state, &run_id(1), &event, &clock).unwrap();
        host.broken_index()
    };
    let closed = crate::index::Closed::from(Head::EMPTY);
    let twice = again(crate::index::IndexEvent::RunClosed(closed));
    assert_eq!(twice, Some(Break { seq: 3, reason: Reason::ClosedTwice }));
    // The first break is the one that is named.
    assert_eq!(again(crate::index::IndexEvent::RunOpened {}), twice);
}

#[test]
fn verification_writes_nothing() {
    let (host, run) = (Host::new(), run_id(1));
    host.write(&run, &PATHS);
    let path = host.state.ledger_path(&run);
    fs::write(&path, b"{\"torn").unwrap();
    let snapshot = || {
        let mut files: Vec<_> = [host.state.path().to_owned(), host.state.run_dir(&run)]
            .iter()
            .flat_map(|dir| fs::read_dir(dir).unwrap())
            .map(|item| item.unwrap().path())
            .map(|path| (fs::read(&path).ok(), fs::metadata(&path).unwrap().modified().unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = snapshot();
    assert_eq!(verify_all(&host.state).unwrap().outcome(), Outcome::Broken);
    assert_eq!(verify_run(&host.state, &run).outcome(), Outcome::Broken);
    assert_eq!(snapshot(), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_strings_are_it_verifies_until_a_byte_changes(
        paths in prop::collection::vec(any::<String>(), 1..5),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let (host, run) = (Host::new(), run_id(1));
        host.write(&run, &paths.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert_eq!(host.broken(&run), None);
        let path = host.state.ledger_path(&run);
        let bytes = fs::read(&path).unwrap();
        let mut changed = bytes.clone();
        let at = at.index(bytes.len());
        changed[at] ^= flip;
        fs::write(&path, changed).unwrap();
        prop_assert_eq!(host.broken(&run).map(|broken| broken.seq), Some(seq_of(&bytes, at)));
    }
}
