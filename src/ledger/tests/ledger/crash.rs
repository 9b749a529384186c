//! Crashes and full disks: a child process of this test is killed, or finds no room.
//!
//! The child is this same test binary, told by a variable to be a supervisor.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use kvro_ledger::verify::{Openness, Outcome, verify_all};
use kvro_ledger::{Actor, Clock, Event, Ledger, RecordError, Redactions, RunId, StateDir, recover};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::{GUARD, clock, ended, hidden, host, run_id};

const STATE: &str = "KVRO_TEST_STATE";
const RUN: &str = "KVRO_TEST_RUN";

#[expect(clippy::disallowed_methods, reason = "the test starts itself a second time")]
fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// Starts `role`, a test below, in a process of its own under `limits`, a shell's words.
fn start(role: &str, state: &StateDir, run: &RunId, limits: &str) -> Child {
    let script = format!(r#"{limits} exec "$@""#);
    command("/bin/sh")
        .args(["-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture"])
        .env(STATE, state.path())
        .env(RUN, run.as_str())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn role() -> Option<(StateDir, RunId)> {
    let state = PathBuf::from(std::env::var_os(STATE)?);
    let run = std::env::var(RUN).ok()?.parse().ok()?;
    Some((StateDir::open(&state).unwrap(), run))
}

/// Tells the parent, past the test harness, on a line of its own.
fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsaid {words}").unwrap();
    out.flush().unwrap();
}

fn said(child: &mut Child) -> impl Iterator<Item = String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("said ").map(str::to_owned))
}

/// Records without end and tells each entry that is durable.
#[test]
fn records_until_killed() {
    let Some((state, run)) = role() else { return };
    let (_ledger, recorder) =
        Ledger::open(&state, run, Clock::system(), Redactions::none()).unwrap();
    for n in 0_u64.. {
        recorder.record(GUARD, hidden(&format!("a{n}")));
        let seq = recorder.record_durably(GUARD, hidden(&format!("b{n}"))).unwrap();
        say(&seq.to_string());
    }
}

#[test]
fn a_killed_writer_loses_nothing_it_called_durable() {
    let host = host();
    for salt in 1..=12 {
        let run = run_id(salt);
        let mut child = start("crash::records_until_killed", &host.state, &run, "");
        let durable: u64 = said(&mut child).nth(salt as usize * 3).unwrap().parse().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let recovered = recover(&host.state, &clock()).unwrap();
        assert!(matches!(&recovered[..], [one] if one.run == run), "{recovered:?}");
        let found = verify_all(&host.state).unwrap();
        assert_eq!(found.outcome(), Outcome::Intact, "{found:?}");
        let events = host.events(&run);
        assert!(events.len() as u64 > durable, "{durable} of {}", events.len());
        assert!(matches!(events.last(), Some((_, Event::LedgerRecovered(_)))));
    }
}

/// Records until there is no room, then ends as a supervisor does.
#[test]
fn records_until_full() {
    let Some((state, run)) = role() else { return };
    let (ledger, recorder) =
        Ledger::open(&state, run, Clock::system(), Redactions::none()).unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    recorder.on_failure(move |error| tell.send(error.clone()).unwrap());
    let refused = (0_u64..).find_map(|n| {
        recorder.record(GUARD, hidden(&format!("a{n}")));
        recorder.record_durably(GUARD, hidden(&format!("b{n}"))).err()
    });
    assert!(matches!(refused, Some(RecordError::Write(_))), "{refused:?}");
    assert!(matches!(told.recv(), Ok(RecordError::Write(_))));
    assert!(matches!(recorder.failure(), Some(RecordError::Write(_))));
    recorder.record(Actor::Supervisor, ended());
    ledger.close().unwrap_err();
    say("reported");
}

#[test]
fn a_full_disk_is_reported_and_the_ledger_stays_whole() {
    let (host, run) = (host(), run_id(1));
    // 32 KiB a file; SIGXFSZ ignored, the write fails as on a full disk.
    let limits = "trap '' XFSZ; ulimit -f 64;";
    let mut child = start("crash::records_until_full", &host.state, &run, limits);
    assert_eq!(said(&mut child).collect::<Vec<_>>(), ["reported"]);
    assert!(child.wait().unwrap().success());
    recover(&host.state, &clock()).unwrap();
    let found = verify_all(&host.state).unwrap();
    assert_eq!(found.outcome(), Outcome::Intact, "{found:?}");
    assert_eq!(found.runs[0].openness, Openness::Closed);
    assert!(host.entries(&run).len() > 50);
}

/// Finds room again before it closes.
#[test]
fn records_until_full_and_has_room_at_the_end() {
    let Some((state, run)) = role() else { return };
    let (ledger, recorder) =
        Ledger::open(&state, run, Clock::system(), Redactions::none()).unwrap();
    let (_, most) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 20_000, most).unwrap();
    let refused =
        (0_u64..).find_map(|n| recorder.record_durably(GUARD, hidden(&n.to_string())).err());
    assert!(matches!(refused, Some(RecordError::Write(_))), "{refused:?}");
    recorder.record(GUARD, hidden("lost"));
    recorder.record(Actor::Supervisor, ended());
    setrlimit(Resource::RLIMIT_FSIZE, most, most).unwrap();
    ledger.close().unwrap_err();
    say("reported");
}

#[test]
fn a_line_torn_by_a_full_disk_is_taken_back_before_another_is_written() {
    let (host, run) = (host(), run_id(1));
    let role = "crash::records_until_full_and_has_room_at_the_end";
    let mut child = start(role, &host.state, &run, "trap '' XFSZ;");
    assert_eq!(said(&mut child).collect::<Vec<_>>(), ["reported"]);
    assert!(child.wait().unwrap().success());
    let found = verify_all(&host.state).unwrap();
    assert_eq!(found.outcome(), Outcome::Intact, "{found:?}");
    assert_eq!(found.runs[0].openness, Openness::Closed);
    let events = host.events(&run);
    let [.., (_, Event::AlertRaised(alert)), (_, last)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let missing = "2 entries are missing: cannot write the ledger: File too large (os error 27)";
    assert_eq!((alert.detail.as_str(), last), (missing, &ended()));
}

#[test]
fn a_ledger_on_a_full_disk_says_what_it_misses_and_how_the_run_ended() {
    let host = host();
    let run = run_id(1);
    // A file system of 192 KiB that only the child sees; what it leaves is copied out.
    let room = host.path.join("room");
    std::fs::create_dir(&room).unwrap();
    let script = r#"
        mount -t tmpfs -o size=192k tmpfs "$ROOM" 2>/dev/null || { echo; echo said none; exit 0; }
        KVRO_TEST_STATE="$ROOM/kvro-jail" "$@" && cp -r "$ROOM/kvro-jail" "$ROOM.kept""#;
    let mut child = command("unshare")
        .args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "crash::records_until_full", "--nocapture"])
        .env("ROOM", &room)
        .env(RUN, run.as_str())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let words: Vec<_> = said(&mut child).collect();
    child.wait().unwrap();
    if words != ["reported"] {
        return; // No user namespaces here: the test above covers the same with a file's limit.
    }
    let kept = StateDir::open(&host.path.join("room.kept")).unwrap();
    let entries = kvro_ledger::read::entries(&kept, &run).unwrap();
    let [.., missing, last] = entries.as_slice() else { panic!("{entries:?}") };
    let Some(Event::AlertRaised(alert)) = missing.known() else { panic!("{missing:?}") };
    assert_eq!(alert.what, "ledger_incomplete");
    assert!(alert.detail.contains("No space left on device"), "{alert:?}");
    assert_eq!(last.known(), Some(&ended()));
    recover(&kept, &clock()).unwrap();
    assert_eq!(verify_all(&kept).unwrap().outcome(), Outcome::Intact);
}

/// Finds the state directory full from the start.
#[test]
fn finds_no_room_at_all() {
    let Some((state, run)) = role() else { return };
    Ledger::open(&state, run, Clock::system(), Redactions::none()).unwrap_err();
    say("refused");
}

#[test]
fn without_room_for_the_first_line_no_run_opens() {
    let (host, run) = (host(), run_id(1));
    let limits = "trap '' XFSZ; ulimit -f 0;";
    let mut child = start("crash::finds_no_room_at_all", &host.state, &run, limits);
    assert_eq!(said(&mut child).collect::<Vec<_>>(), ["refused"]);
    assert!(child.wait().unwrap().success());
    let found = verify_all(&host.state).unwrap();
    assert_eq!(found.outcome(), Outcome::Intact, "{found:?}");
    host.open(&run_id(2)).0.close().unwrap();
}
