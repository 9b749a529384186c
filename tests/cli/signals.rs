//! Signals to the supervisor reach the command, each once.

use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::world::{Started, World, wait_for};

/// Says each signal that arrives, until it is told to stop.
const SAY: &str = r#"
    for s in TERM INT HUP USR1 USR2; do trap "echo $s; echo $s >>seen" $s; done
    touch ready
    until [ -e stop ]; do sleep 0.02; done
    echo end"#;

fn listening(world: &World) -> Started {
    let mut command = world.program(&["-q", "--grace", "200ms", "--report"]);
    command.arg(world.path("report.json")).args(["--", "sh", "-c", SAY]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = world.started(command);
    wait_for("the command listens", || world.path("work/ready").exists());
    started
}

#[test]
fn a_signal_reaches_the_command_once_and_the_command_decides() {
    for signal in
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2]
    {
        let world = World::new();
        let started = listening(&world);
        started.signal(signal);
        wait_for("the signal arrives", || world.path("work/seen").exists());
        world.put("work/stop", "");
        let ran = started.end();
        assert_eq!(ran.lines(), [signal.as_str().trim_start_matches("SIG"), "end"], "{ran:?}");
        assert_eq!((ran.code, &*ran.notes), (0, ""), "{signal}");
    }
}

#[test]
fn a_second_sigterm_ends_the_tree() {
    let world = World::new();
    let started = listening(&world);
    started.signal(Signal::SIGTERM);
    wait_for("the first arrives", || world.path("work/seen").exists());
    started.signal(Signal::SIGTERM);
    let ran = started.end();
    // It never stopped by itself: SIGKILL after the grace.
    assert_eq!(ran.code, 137, "{ran:?}");
    assert!(!ran.text().contains("end"), "{ran:?}");
    let report = std::fs::read_to_string(world.path("report.json")).unwrap();
    assert!(report.contains(r#""ended_by": "user""#), "{report}");
    assert_eq!(world.living(), [0_u32; 0]);
}

#[test]
fn a_command_that_dies_of_a_sigterm_to_the_supervisor_was_ended_by_its_user() {
    let world = World::new();
    let command = world.program(&["-q", "--", "sh", "-c", "touch ready; exec sleep 600"]);
    let started = world.started(command);
    wait_for("the command runs", || world.path("work/ready").exists());
    started.signal(Signal::SIGTERM);
    assert_eq!(started.end().code, 143);
    assert!(world.ledger().contains(r#""ended_by":"user""#), "{}", world.ledger());
}

#[test]
fn a_hangup_that_the_caller_ignores_ends_nobody() {
    let world = World::new();
    let mut command = world.tool("sh".as_ref());
    // As nohup(1) does it. The command outlives the time that a hangup leaves it.
    let script = r#"trap "" HUP; exec "$0" -q -- sh -c '
        touch ready; until [ -e stop ]; do sleep 0.02; done; sleep 2.5; echo survived'"#;
    command.args(["-c", script]).arg(crate::world::program());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = world.started(command);
    wait_for("the command runs", || world.path("work/ready").exists());
    started.signal(Signal::SIGHUP);
    world.put("work/stop", "");
    let ran = started.end();
    assert_eq!((ran.text(), ran.code, &*ran.notes), ("survived\n", 0, ""));
}
