//! The subcommand as it is typed, on ledgers made for the purpose.

use std::io::{PipeReader, Read, Write, pipe};
use std::path::PathBuf;

use clap::Parser;
use jiff::Timestamp;
use kvro_ledger::event::{EndedBy, HiddenOpened, RunEnded, RunStarted};
use kvro_ledger::{Actor, Clock, Event, Ledger, Recorder, Redactions, RunId, StateDir};
use serde_json::{Value, json};

use crate::cli::ledger::{LedgerArgs, run};

#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    args: LedgerArgs,
}

struct Host {
    // Held until the test is over.
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kvro-jail");
        Self { _dir: dir, path }
    }

    fn open(&self, run: &RunId) -> (Ledger, Recorder) {
        let state = StateDir::open(&self.path).unwrap();
        let clock = Clock::new(|| "2026-11-30T16:12:00.123456789Z".parse().unwrap());
        let (ledger, recorder) =
            Ledger::open(&state, run.clone(), clock, Redactions::none()).unwrap();
        recorder.record(Actor::Supervisor, started());
        (ledger, recorder)
    }

    /// A closed run that opened a file with an evil name.
    fn write(&self, run: &RunId) {
        let (ledger, recorder) = self.open(run);
        recorder.record(Actor::Guard, hidden("a b\x1b[2J\u{202e}"));
        recorder.record(Actor::Supervisor, ended());
        ledger.close().unwrap();
    }

    fn typed(&self, words: &str) -> anyhow::Result<(u8, String)> {
        let words = ["ledger"].into_iter().chain(words.split(' '));
        let mut out = Vec::new();
        let code = run(&Typed::parse_from(words).args, &self.path, &mut out)?;
        Ok((code, String::from_utf8(out).unwrap()))
    }

    fn json(&self, words: &str) -> (u8, Value) {
        let (code, out) = self.typed(words).unwrap();
        (code, serde_json::from_str(&out).unwrap())
    }
}

fn run_id(salt: u32) -> RunId {
    RunId::new("2026-11-30T16:12:00Z".parse::<Timestamp>().unwrap(), salt)
}

fn started() -> Event {
    Event::RunStarted(RunStarted {
        command: vec!["true".to_owned(), "\x1b".to_owned()],
        workspace: "/w".to_owned(),
        profile: "p".to_owned(),
        policy: vec![],
        version: "0".to_owned(),
        uid: 1,
        pid: 2,
    })
}

fn hidden(path: &str) -> Event {
    Event::HiddenOpened(HiddenOpened { path: path.to_owned() })
}

fn ended() -> Event {
    Event::RunEnded(RunEnded {
        exit_code: 3,
        ended_by: EndedBy::Exit,
        reason: String::new(),
        duration_ms: 61_000,
    })
}

#[test]
fn list_shows_each_run_with_how_it_ended() {
    let host = Host::new();
    host.write(&run_id(1));
    let (_ledger, recorder) = host.open(&run_id(2));
    recorder.record_durably(Actor::Guard, hidden("x")).unwrap();
    let expected = "\
RUN                     STATE      EXIT          TIME  TURNS        COST  COMMAND
20261130-161200-000001  ended         3     1 min 1 s      0          $0  true \\u{1b}
20261130-161200-000002  live          -             -      0          $0  true \\u{1b}
";
    assert_eq!(host.typed("list").unwrap(), (0, expected.to_owned()));
    let (code, rows) = host.json("list --json");
    let state = StateDir::existing(&host.path).unwrap();
    let first = json!({
        "run": "20261130-161200-000001",
        "state": "ended",
        "command": ["true", "\x1b"],
        "started": "2026-11-30T16:12:00.123456789Z",
        "ended": "2026-11-30T16:12:00.123456789Z",
        "exit_code": 3,
        "ended_by": "exit",
        "duration_ms": 61_000,
        "turns": 0,
        "calls": 0,
        "cost_usd": "0",
        "ledger": state.ledger_path(&run_id(1)),
    });
    assert_eq!((code, &rows[0], &rows[1]["state"]), (0, &first, &json!("live")));
}

#[test]
fn show_prints_lines_that_a_terminal_does_not_act_upon() {
    let host = Host::new();
    host.write(&run_id(1));
    let (code, out) = host.typed("show last").unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len()), (0, 3));
    let expected =
        r#"    2  16:12:00.123  guard       fs.hidden_opened      path="a b\u001b[2J\u202e""#;
    assert_eq!(lines[1], expected);
    let (_, out) = host.typed("show last --json").unwrap();
    assert!(!out.contains(['\x1b', '\u{202e}']), "{out:?}");
    let second: Value = serde_json::from_str(out.lines().nth(1).unwrap()).unwrap();
    assert_eq!(
        (&second["seq"], &second["data"]["path"]),
        (&json!(2), &json!("a b\x1b[2J\u{202e}"))
    );
}

#[test]
fn show_report_prints_the_report_of_the_run() {
    let host = Host::new();
    host.write(&run_id(1));
    let (code, report) = host.json("show 20261130-161200-000001 --report");
    assert_eq!(code, 0);
    let some =
        [&report["run"], &report["exit_code"], &report["hidden_opened"], &report["cost_usd"]];
    let opened = json!(["a b\x1b[2J\u{202e}"]);
    assert_eq!(some, [&json!("20261130-161200-000001"), &json!(3), &opened, &json!("0")]);
}

#[test]
fn a_run_is_found_by_how_its_name_begins_and_only_if_that_is_one() {
    let host = Host::new();
    let none = host.typed("show last").unwrap_err().to_string();
    assert_eq!(none, "there is no run on record");
    host.write(&run_id(0x10));
    host.write(&run_id(0x20));
    assert_eq!(host.typed("show 20261130-161200-00001").unwrap().0, 0);
    let [many, none] = ["show 2026", "show 1999"].map(|w| host.typed(w).unwrap_err().to_string());
    let expected = "2 runs begin with 2026, from 20261130-161200-000010 to 20261130-161200-000020";
    assert_eq!([many.as_str(), none.as_str()], [expected, "there is no run 1999 on record"]);
}

#[test]
fn tail_shows_the_last_entries() {
    let (host, run) = (Host::new(), run_id(1));
    let (ledger, recorder) = host.open(&run);
    (0..30).for_each(|n| recorder.record(Actor::Guard, hidden(&n.to_string())));
    ledger.close().unwrap();
    let (_, out) = host.typed("tail").unwrap();
    let shown: Vec<&str> = out.lines().filter_map(|line| line.rsplit('=').next()).collect();
    let expected: Vec<String> = (10..30).map(|n| n.to_string()).collect();
    assert_eq!(shown, expected);
}

#[test]
fn a_followed_run_is_shown_as_it_goes_on_and_until_it_ends() {
    let (host, run_name) = (Host::new(), run_id(1));
    let (ledger, recorder) = host.open(&run_name);
    recorder.record_durably(Actor::Guard, hidden("before")).unwrap();
    let (mut reader, mut writer) = pipe().unwrap();
    let path = host.path.clone();
    let following = std::thread::spawn(move || {
        let args = Typed::parse_from(["ledger", "tail", "-f"]).args;
        run(&args, &path, &mut writer).unwrap()
    });
    let mut seen = read_until(&mut reader, "path=before");
    recorder.record_durably(Actor::Guard, hidden("after")).unwrap();
    seen += &read_until(&mut reader, "path=after");
    ledger.close().unwrap();
    assert_eq!(following.join().unwrap(), 0);
    assert_eq!(seen.lines().count(), 3, "{seen}");
}

fn read_until(reader: &mut PipeReader, wanted: &str) -> String {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        reader.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

#[test]
fn who_stops_reading_ends_the_output_without_an_error() {
    let host = Host::new();
    host.write(&run_id(1));
    let (reader, mut writer) = pipe().unwrap();
    drop(reader);
    let args = Typed::parse_from(["ledger", "show", "last"]).args;
    assert_eq!(run(&args, &host.path, &mut writer).unwrap(), 0);
    writer.flush().unwrap();
}

#[test]
fn verify_exits_with_what_it_found() {
    let host = Host::new();
    let (code, out) = host.typed("verify").unwrap();
    assert_eq!(code, 2, "{out}");
    host.write(&run_id(1));
    host.write(&run_id(2));
    let intact = "\
20261130-161200-000001  intact, 3 entries
20261130-161200-000002  intact, 3 entries
intact: 2 runs and the index verified
";
    assert_eq!(host.typed("verify").unwrap(), (0, intact.to_owned()));

    let path = StateDir::existing(&host.path).unwrap().ledger_path(&run_id(2));
    let bytes = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, bytes.replace("a b", "a c")).unwrap();
    let broken = "\
20261130-161200-000001  intact, 3 entries
20261130-161200-000002  BROKEN at entry 2: was changed
broken: 2 runs and the index verified
";
    assert_eq!(host.typed("verify").unwrap(), (1, broken.to_owned()));
    let expected = json!({
        "outcome": "broken",
        "index": {"outcome": "intact"},
        "runs": [{
            "run": "20261130-161200-000002",
            "state": "closed",
            "entries": 2,
            "outcome": "broken",
            "seq": 2,
            "reason": "changed",
            "message": "entry 2: was changed",
        }],
    });
    assert_eq!(host.json("verify last --json"), (1, expected));
    assert_eq!(host.typed("verify 20261130-161200-000001").unwrap().0, 0);
    let (code, out) = host.typed("verify 1999").unwrap();
    assert_eq!((code, out.as_str()), (2, "unreadable: there is no run 1999 on record\n"));
}

#[test]
fn verify_says_what_it_cannot_know_of_a_run_that_goes_on() {
    let host = Host::new();
    let (_ledger, recorder) = host.open(&run_id(1));
    recorder.record_durably(Actor::Guard, hidden("x")).unwrap();
    let expected = "\
20261130-161200-000001  intact, 2 entries
                        it is still written: entries cut from its end would not be noticed
intact: 1 run and the index verified
";
    assert_eq!(host.typed("verify").unwrap(), (0, expected.to_owned()));
}
