//! The tracker on real processes of this machine.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

type Told = Rc<RefCell<Vec<ProcessSeen>>>;

/// A tracker for the children of `pid_1`, and what it tells.
fn tracker(pid_1: u32) -> (Tracker<impl FnMut(ProcessSeen)>, Told) {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let mut tracker = Tracker::new(move |seen| tell.borrow_mut().push(seen)).unwrap();
    tracker.pid_1 = Some(pid_1);
    (tracker, told)
}

#[expect(clippy::disallowed_methods, reason = "a test starts programs; that is its work")]
fn shell(script: &str) -> Child {
    let mut shell = Command::new("/bin/sh");
    let shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    shell.spawn().unwrap()
}

/// A shell, and a process that it forked and that runs what it is told to after a line of input.
fn fork_that_runs(command: &str) -> (Child, u32) {
    let script = format!("exec 3<&0; (sh -c 'echo $PPID'; read line; {command}) <&3 & wait");
    let mut shell = shell(&script);
    let mut line = String::new();
    BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (shell, line.trim().parse().unwrap())
}

/// Lets the fork go on and waits until its parent has collected it.
fn end(mut shell: Child) {
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    shell.wait().unwrap();
}

/// Ends the fork by `signal` and waits until its parent has collected it.
fn kill_fork(mut shell: Child, fork: u32, signal: Signal) {
    kill(Pid::from_raw(fork.cast_signed()), signal).unwrap();
    shell.wait().unwrap();
}

/// What was told, in words.
fn words(told: &Told) -> Vec<String> {
    told.borrow_mut()
        .drain(..)
        .map(|seen| match seen {
            ProcessSeen::Started(ProcessStarted { by: StartedBy::Fork, number, .. }) => {
                format!("{number} forked")
            }
            ProcessSeen::Started(ProcessStarted {
                by: StartedBy::Exec { args, .. },
                number,
                ..
            }) => {
                let args = args.join(&OsString::from(" "));
                format!("{number} runs {}", args.display())
            }
            ProcessSeen::Exited(ProcessExited { number, end, .. }) => format!("{number} {end:?}"),
            ProcessSeen::Missed(missed) => format!("{missed:?}"),
        })
        .collect()
}

#[test]
fn a_program_that_was_asked_for_and_never_ran_is_not_on_record() {
    let (shell, fork) = fork_that_runs("exit 3");
    let (mut tracker, told) = tracker(shell.id());
    // A search of PATH.
    for _ in 0..5 {
        tracker.exec_asked(fork, || true);
    }
    tracker.look_again(Instant::now() + Duration::from_secs(60));
    assert_eq!(words(&told), [""; 0]);
    tracker.exit_asked(fork, || true);
    assert_eq!(words(&told), ["1 forked"]);
    end(shell);
    tracker.take_exits().unwrap();
    assert_eq!(words(&told), ["1 Exited(3)"]);
    assert_eq!((tracker.known.len(), tracker.due.len(), tracker.held), (0, 0, 0));
}

#[test]
fn a_program_is_on_record_once_it_runs_and_the_next_one_in_its_place_too() {
    let next = r#"exec sh -c 'read line; exec sh -c "read line; exit 7"'"#;
    let (mut shell, fork) = fork_that_runs(next);
    let (mut tracker, told) = tracker(shell.id());
    let mut go_on = |tracker: &mut Tracker<_>| {
        tracker.exec_asked(fork, || true);
        let now = || procfs::stat(fork).unwrap();
        let before = now().layout;
        shell.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        while now().layout == before || now().life != Life::Running {
            std::thread::yield_now();
        }
    };
    go_on(&mut tracker);
    let first = tracker.due().unwrap();
    tracker.look_again(first);
    let expected = r#"1 runs sh -c read line; exec sh -c "read line; exit 7""#;
    assert_eq!(words(&told), [expected]);
    // The same program, told from the first one by where it lies.
    go_on(&mut tracker);
    tracker.exit_asked(fork, || true);
    assert_eq!(words(&told), ["1 runs sh -c read line; exit 7"]);
    end(shell);
    tracker.take_exits().unwrap();
    assert_eq!(words(&told), ["1 Exited(7)"]);
}

#[test]
fn without_random_addresses_a_program_is_told_from_the_last_by_its_file_and_arguments() {
    let own = std::process::id();
    let stat = procfs::stat(own).unwrap();
    let (program, args) = (procfs::program(own), procfs::args(own, &stat));
    let shape = || Shape::of(&stat, program.as_ref(), args.as_ref());
    assert!(!shape().is_replaced(own, &stat));
    let other_file = Shape { file: shape().file.map(|(dev, ino)| (dev, ino + 1)), ..shape() };
    assert!(other_file.is_replaced(own, &stat));
    let other_args = Shape { args: shape().args.map(|hash| hash ^ 1), ..shape() };
    assert!(other_args.is_replaced(own, &stat));
}

#[test]
fn one_that_was_killed_before_anybody_could_look_is_counted() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(shell.id());
    tracker.exec_asked(fork, || true);
    kill_fork(shell, fork, Signal::SIGKILL);
    tracker.take_exits().unwrap();
    assert_eq!(words(&told), ["Start(Unconfirmed)"]);
}

#[test]
fn an_end_by_a_signal_is_told_as_such() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(shell.id());
    tracker.exit_asked(fork, || true);
    kill_fork(shell, fork, Signal::SIGTERM);
    tracker.take_exits().unwrap();
    assert_eq!(words(&told), ["1 forked", "1 Signaled(15)"]);
}

#[test]
fn ancestors_without_a_program_are_found_by_their_children() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(std::process::id());
    tracker.exit_asked(fork, || true);
    // The shell was forked and is not seen to have run anything since.
    assert_eq!(words(&told), ["1 forked", "2 forked"]);
    let process = &tracker.known[&fork];
    assert_eq!((process.parent, process.parent_pid), (Some(1), shell.id()));
    assert_eq!((tracker.known[&shell.id()].parent, process.number), (None, 2));
    end(shell);
}

#[test]
fn a_caller_that_is_gone_is_nobody() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(shell.id());
    tracker.exec_asked(fork, || false);
    tracker.exit_asked(u32::MAX, || false);
    assert_eq!((words(&told), tracker.known.len(), tracker.held), (vec![], 0, 0));
    tracker.exec_asked(u32::MAX, || true);
    assert_eq!(words(&told), ["Start(Unreadable)"]);
    end(shell);
}

#[test]
fn more_than_can_be_held_have_no_known_end_and_more_than_can_be_known_are_counted() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(shell.id());
    tracker.most_held = 0;
    tracker.exit_asked(fork, || true);
    assert_eq!(words(&told), ["1 forked", "End(TooMany)", "1 Unknown"]);
    tracker.most_known = 0;
    tracker.exec_asked(fork, || true);
    assert_eq!(words(&told), ["Start(TooMany)"]);
    end(shell);
}

#[test]
fn a_program_of_one_that_was_forgotten_is_not_taken_for_the_one_it_asks_for() {
    let mut shell = shell("read line");
    let (mut tracker, told) = tracker(std::process::id());
    let is_there = || {
        let stat = procfs::stat(shell.id()).unwrap();
        let args = procfs::args(shell.id(), &stat).unwrap();
        stat.life == Life::Running && args.kept.first().is_some_and(|name| name == "/bin/sh")
    };
    while !is_there() {
        std::thread::yield_now();
    }
    tracker.has_forgotten = true;
    tracker.exec_asked(shell.id(), || true);
    tracker.exec_asked(shell.id(), || true);
    assert_eq!(words(&told), [""; 0]);
    shell.kill().unwrap();
    shell.wait().unwrap();
}

#[test]
fn who_is_left_when_the_jail_is_over_has_no_known_end() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(shell.id());
    tracker.exit_asked(fork, || true);
    tracker.finish();
    assert_eq!(words(&told), ["1 forked", "1 Unknown"]);
    end(shell);
}
