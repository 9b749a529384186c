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

/// Lets the fork go on.
fn go_on(shell: &mut Child) {
    shell.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}

/// Lets the fork go on, and waits until it runs its next program.
fn go_on_to_the_next(shell: &mut Child, fork: u32) {
    let now = || procfs::stat(fork).unwrap();
    let before = now().layout;
    go_on(shell);
    while now().layout == before || now().life != Life::Running {
        std::thread::yield_now();
    }
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
            ProcessSeen::Started(ProcessStarted { number, by, .. }) => match by {
                StartedBy::Fork => format!("{number} forked"),
                StartedBy::Exec(program) => {
                    format!("{number} runs {}", program.args.join(&OsString::from(" ")).display())
                }
            },
            ProcessSeen::Exited(ProcessExited { number, end, .. }) => format!("{number} {end:?}"),
            ProcessSeen::Missed(missed) => format!("{missed:?}"),
        })
        .collect()
}

#[test]
fn a_program_that_was_asked_for_and_never_ran_is_not_on_record() {
    let (mut shell, fork) = fork_that_runs("exit 127");
    let (mut tracker, told) = tracker(shell.id());
    // A search of PATH.
    for _ in 0..5 {
        tracker.exec_asked(fork, || true);
    }
    tracker.look_again(Instant::now() + Duration::from_secs(60));
    // Anybody may call what a program calls when it begins.
    tracker.begun(fork);
    tracker.exit_asked(fork);
    go_on(&mut shell);
    shell.wait().unwrap();
    tracker.take_exits().unwrap();
    assert_eq!(words(&told), [""; 0]);
    assert_eq!((tracker.known.len(), tracker.due.len(), tracker.held), (0, 0, 0));
}

#[test]
fn a_program_is_on_record_once_it_runs_and_the_next_one_in_its_place_too() {
    let next = r#"exec sh -c 'read line; exec sh -c "read line; exit 7"'"#;
    let (mut shell, fork) = fork_that_runs(next);
    let (mut tracker, told) = tracker(shell.id());
    tracker.exec_asked(fork, || true);
    go_on_to_the_next(&mut shell, fork);
    tracker.begun(fork);
    let expected = r#"1 runs sh -c read line; exec sh -c "read line; exit 7""#;
    assert_eq!(words(&told), [expected]);
    // The same program, told from the first one by where it lies. Without a word of its own it is
    // found by itself.
    tracker.exec_asked(fork, || true);
    go_on_to_the_next(&mut shell, fork);
    tracker.look_again(tracker.due().unwrap());
    assert_eq!(words(&told), ["1 runs sh -c read line; exit 7"]);
    go_on(&mut shell);
    shell.wait().unwrap();
    tracker.take_exits().unwrap();
    assert_eq!(words(&told), ["1 Exited(7)"]);
    assert_eq!((tracker.known.len(), tracker.due.len(), tracker.held), (0, 0, 0));
}

#[test]
fn a_program_is_found_at_the_next_exec_and_at_an_exit_as_well() {
    for next in ["exec", "exit"] {
        let (mut shell, fork) = fork_that_runs("exec sleep 60");
        let (mut tracker, told) = tracker(shell.id());
        tracker.exec_asked(fork, || true);
        go_on_to_the_next(&mut shell, fork);
        match next {
            "exec" => tracker.exec_asked(fork, || true),
            _ => tracker.exit_asked(fork),
        }
        assert_eq!(words(&told), ["1 runs sleep 60"], "{next}");
        kill_fork(shell, fork, Signal::SIGKILL);
    }
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
    let (mut shell, fork) = fork_that_runs("exec sleep 60");
    let (mut tracker, told) = tracker(shell.id());
    tracker.exec_asked(fork, || true);
    go_on_to_the_next(&mut shell, fork);
    tracker.begun(fork);
    kill_fork(shell, fork, Signal::SIGTERM);
    tracker.take_exits().unwrap();
    assert_eq!(words(&told), ["1 runs sleep 60", "1 Signaled(15)"]);
}

#[test]
fn ancestors_without_a_program_are_found_by_their_children() {
    let (mut shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(std::process::id());
    tracker.exec_asked(fork, || true);
    // The shell was not seen to run anything since it was forked.
    assert_eq!(words(&told), ["1 forked"]);
    let process = &tracker.known[&fork];
    assert_eq!((process.parent, process.parent_pid, process.number), (Some(1), shell.id(), 2));
    assert_eq!((tracker.known[&shell.id()].parent), None);
    go_on(&mut shell);
    shell.wait().unwrap();
}

#[test]
fn a_caller_that_is_gone_is_nobody() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(shell.id());
    tracker.exec_asked(fork, || false);
    tracker.exec_asked(u32::MAX, || false);
    assert_eq!((words(&told), tracker.known.len(), tracker.held), (vec![], 0, 0));
    tracker.exec_asked(u32::MAX, || true);
    assert_eq!(words(&told), ["Start(Unreadable)"]);
    kill_fork(shell, fork, Signal::SIGKILL);
}

#[test]
fn more_than_can_be_held_have_no_known_end_and_more_than_can_be_known_are_counted() {
    let (mut shell, fork) = fork_that_runs("exec sleep 60");
    let (mut tracker, told) = tracker(shell.id());
    tracker.most_held = 0;
    tracker.exec_asked(fork, || true);
    go_on_to_the_next(&mut shell, fork);
    tracker.begun(fork);
    assert_eq!(words(&told), ["1 runs sleep 60", "End(TooMany)"]);
    assert_eq!((tracker.known.len(), tracker.due.len()), (0, 0));
    tracker.most_known = 0;
    tracker.exec_asked(fork, || true);
    assert_eq!(words(&told), ["Start(TooMany)"]);
    kill_fork(shell, fork, Signal::SIGKILL);
}

#[test]
fn one_that_is_not_held_is_not_kept_when_it_is_gone() {
    let (shell, fork) = fork_that_runs("exit 0");
    let (mut tracker, told) = tracker(shell.id());
    tracker.most_held = 0;
    tracker.exec_asked(fork, || true);
    kill_fork(shell, fork, Signal::SIGKILL);
    tracker.look_again(Instant::now() + Duration::from_secs(60));
    assert_eq!(words(&told), ["Start(Unconfirmed)"]);
    assert_eq!((tracker.known.len(), tracker.due.len()), (0, 0));
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
    let (mut shell, fork) = fork_that_runs("exec sleep 60");
    let (mut tracker, told) = tracker(shell.id());
    tracker.exec_asked(fork, || true);
    go_on_to_the_next(&mut shell, fork);
    tracker.begun(fork);
    tracker.finish();
    assert_eq!(words(&told), ["1 runs sleep 60", "1 Unknown"]);
    kill_fork(shell, fork, Signal::SIGKILL);
}
