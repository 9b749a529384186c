//! From what was seen of a process to the event that says so.

use std::ffi::OsStr;
use std::time::Instant;

use jiff::Timestamp;
use kvro_ledger::Event;
use kvro_ledger::event::{self, RecordingMissed};
use kvro_sandbox::{
    ProcessEnd, ProcessExited, ProcessProgram, ProcessSeen, ProcessStarted, StartedBy,
};
use nix::sys::signal::Signal;

use super::queue::Missed;

/// The event of `seen`; `now` on both clocks tells when that was.
pub(super) fn event(
    seen: ProcessSeen,
    sha256: Option<String>,
    now: (Timestamp, Instant),
) -> Option<Event> {
    match seen {
        ProcessSeen::Started(seen) => Some(Event::ProcessStarted(started(seen, sha256, now))),
        ProcessSeen::Exited(seen) => Some(Event::ProcessExited(exited(seen, now))),
        // Counted, and told together.
        ProcessSeen::Missed(_) => None,
    }
}

pub(super) fn missed(missed: Missed, count: u64) -> RecordingMissed {
    let (what, reason) = missed.words();
    RecordingMissed { what: what.to_owned(), reason: reason.to_owned(), count }
}

fn started(
    seen: ProcessStarted,
    sha256: Option<String>,
    now: (Timestamp, Instant),
) -> event::ProcessStarted {
    let ProcessStarted { number, parent, pid, parent_pid, by, at } = seen;
    let mut started = event::ProcessStarted {
        process: number,
        parent,
        pid,
        parent_pid,
        by: event::StartedBy::Fork,
        executable: None,
        sha256,
        args: Vec::new(),
        omitted_args_bytes: 0,
        cwd: None,
        time: wall(at, now),
    };
    if let StartedBy::Exec(program) = by {
        let ProcessProgram { executable, file: _, args, omitted, cwd } = *program;
        started.by = event::StartedBy::Exec;
        started.executable = executable.map(|path| lossy(path.as_os_str()));
        started.args = args.iter().map(|arg| lossy(arg)).collect();
        started.omitted_args_bytes = omitted;
        started.cwd = cwd.map(|path| lossy(path.as_os_str()));
    }
    started
}

fn exited(seen: ProcessExited, now: (Timestamp, Instant)) -> event::ProcessExited {
    let ProcessExited { number, pid, end, at } = seen;
    let end = match end {
        ProcessEnd::Exited(code) => event::ProcessEnd::Exited { code },
        ProcessEnd::Signaled(signal) => event::ProcessEnd::Signaled { signal: name(signal) },
        ProcessEnd::Unknown => event::ProcessEnd::Unknown,
    };
    event::ProcessExited { process: number, pid, end, time: wall(at, now) }
}

fn name(signal: i32) -> String {
    let name = Signal::try_from(signal).map(Signal::as_str);
    name.map_or_else(|_| format!("signal {signal}"), str::to_owned)
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// The wall time of `at`.
fn wall(at: Instant, (wall, now): (Timestamp, Instant)) -> String {
    let ago = now.saturating_duration_since(at);
    let then = wall.checked_sub(ago).unwrap_or(wall);
    format!("{then:.9}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_is_told_with_what_the_kernel_knew() {
        let instant = Instant::now() + Duration::from_secs(1);
        let now = ("2026-11-30T16:12:01Z".parse().unwrap(), instant);
        let by = StartedBy::Exec(Box::new(ProcessProgram {
            executable: Some("/usr/bin/make".into()),
            file: None,
            args: vec!["make".into(), std::ffi::OsString::from_vec(b"\xffx".to_vec())],
            omitted: 7,
            cwd: Some("/w".into()),
        }));
        let at = instant.checked_sub(Duration::from_millis(250)).unwrap();
        let seen = ProcessStarted { number: 3, parent: Some(1), pid: 9, parent_pid: 2, by, at };
        let expected = event::ProcessStarted {
            process: 3,
            parent: Some(1),
            pid: 9,
            parent_pid: 2,
            by: event::StartedBy::Exec,
            executable: Some("/usr/bin/make".to_owned()),
            sha256: Some("00".to_owned()),
            args: vec!["make".to_owned(), "\u{fffd}x".to_owned()],
            omitted_args_bytes: 7,
            cwd: Some("/w".to_owned()),
            time: "2026-11-30T16:12:00.750000000Z".to_owned(),
        };
        let told = event(ProcessSeen::Started(seen), Some("00".to_owned()), now);
        assert_eq!(told, Some(Event::ProcessStarted(expected)));
    }

    #[test]
    fn an_end_is_told_by_name_and_never_guessed() {
        let instant = Instant::now();
        let now = ("2026-11-30T16:12:01Z".parse().unwrap(), instant);
        for (end, expected) in [
            (ProcessEnd::Exited(1), r#"{"status":"exited","process.exit.code":1}"#),
            (ProcessEnd::Signaled(9), r#"{"status":"signaled","signal":"SIGKILL"}"#),
            (ProcessEnd::Signaled(34), r#"{"status":"signaled","signal":"signal 34"}"#),
            (ProcessEnd::Unknown, r#"{"status":"unknown"}"#),
        ] {
            let told = exited(ProcessExited { number: 1, pid: 2, end, at: instant }, now);
            assert_eq!(serde_json::to_string(&told.end).unwrap(), expected);
        }
    }
}
