//! At a terminal: the agent has one of its own, keys reach it once, and the caller's is given back
//! as it was after every end.

mod pty;

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::world::{World, program, wait_for};
use pty::{Mode, Pty};

/// Says each SIGINT, until it is told to stop.
const COUNT: &str = r#"n=0; trap 'n=$((n+1)); echo "INT $n"' INT; echo ready
    until [ -e stop ]; do sleep 0.02; done; echo "end $n""#;

#[test]
fn the_agent_has_a_terminal_of_its_own() {
    let world = World::new();
    let pty = Pty::open(30, 100);
    let script = r#"tty; test -t 0 && test -t 1 && test -t 2 && echo all
        echo direct >/dev/tty; stty size; echo $TERM; exit 3"#;
    let started = pty.start(&world, &["-q", "--", "sh", "-c", script]);
    assert_eq!(started.end().code, 3);
    pty.wait_for("xterm\r\n");
    let said = pty.said();
    let lines: Vec<&str> = said.lines().collect();
    let [tty, all, direct, size, term] = &*lines else { panic!("{said:?}") };
    assert!(tty.strip_prefix("/dev/pts/").is_some_and(|n| n.parse::<u32>().is_ok()), "{said:?}");
    assert_eq!((*all, *direct, *size, *term), ("all", "direct", "30 100", "xterm"));
    assert_eq!(pty.mode(), Mode::Cooked);
}

#[test]
fn a_stream_that_is_no_terminal_is_none_inside() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let mut command = pty.command(
        &world,
        &["-q", "--", "sh", "-c", "for fd in 0 1 2; do test -t $fd && echo $fd; done"],
    );
    command.stdout(std::process::Stdio::piped());
    let ran = world.started(command).end();
    assert_eq!(ran.lines(), ["0", "2"], "{ran:?}");
    assert_eq!(pty.mode(), Mode::Cooked);
}

#[test]
fn a_resized_window_is_resized_inside() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let script = r#"trap 'stty size' WINCH; stty size; until [ -e stop ]; do sleep 0.02; done"#;
    let started = pty.start(&world, &["-q", "--", "sh", "-c", script]);
    pty.wait_for("24 80\r\n");
    pty.resize(50, 132);
    pty.wait_for("50 132\r\n");
    world.put("work/stop", "");
    assert_eq!(started.end().code, 0);
}

#[test]
fn each_ctrl_c_is_one_interrupt_and_ends_nobody_else() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let started = pty.start(&world, &["-q", "--", "sh", "-c", COUNT]);
    pty.wait_for("ready\r\n");
    assert_eq!(pty.mode(), Mode::Raw);
    pty.press("\x03");
    pty.wait_for("INT 1\r\n");
    pty.press("\x03");
    pty.wait_for("INT 2\r\n");
    world.put("work/stop", "");
    assert_eq!(started.end().code, 0);
    pty.wait_for("end 2\r\n");
    assert_eq!(pty.mode(), Mode::Cooked);
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_ask() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let started = pty.start(&world, &["-q", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    pty.wait_for("ready\r\n");
    pty.press("\x03");
    assert_eq!(started.end().code, 130);
    assert_eq!(pty.mode(), Mode::Cooked);
    assert_eq!(world.living(), [0_u32; 0]);
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_fg() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let mut command = pty.shell(&world);
    command.env("PS1", "prompt% ").env("KVRO", program());
    let started = world.started(command);
    pty.wait_for("prompt% ");
    // The words that are waited for must not be those that the terminal echoes.
    pty.press(
        "\"$KVRO\" -q -- sh -c 'echo re\"\"ady; while read -r l; do echo \"<$l>\"; done; exit 5'\r",
    );
    pty.wait_for("ready\r\n");
    pty.press("one\r");
    pty.wait_for("<one>\r\n");
    assert_eq!(pty.mode(), Mode::Raw);

    pty.press("\x1a");
    pty.wait_for("Stopped");
    pty.wait_for_mode(Mode::Cooked);
    pty.press("echo at the sh\"\"ell\r");
    pty.wait_for("at the shell\r\n");

    pty.press("fg\r");
    pty.wait_for_mode(Mode::Raw);
    pty.press("two\r");
    pty.wait_for("<two>\r\n");
    pty.press("\x04");
    pty.wait_for_mode(Mode::Cooked);
    pty.press("echo code \"\"$?\r");
    pty.wait_for("code 5\r\n");
    pty.press("exit\r");
    assert_eq!(started.end().code, 0);
}

#[test]
fn raw_mode_ends_with_a_jail_that_is_killed() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let started = pty.start(&world, &["-q", "--", "sh", "-c", "echo ready; sleep 600"]);
    pty.wait_for("ready\r\n");
    assert_eq!(pty.mode(), Mode::Raw);
    assert_eq!(world.call(&["kill", &world.runs()[0]]).code, 0);
    assert_eq!(started.end().code, 143);
    assert_eq!(pty.mode(), Mode::Cooked);
}

#[test]
fn raw_mode_ends_with_a_command_that_never_was() {
    let world = World::new();
    world.put("work/kvro-jail.toml", "version = 1\nwrong\n");
    for (args, code) in [
        (&["--", "true"][..], 125),
        (&["--policy", "builtin:default", "--", "no-such-command"], 127),
    ] {
        let pty = Pty::open(24, 80);
        assert_eq!(pty.start(&world, args).end().code, code);
        assert_eq!(pty.mode(), Mode::Cooked);
    }
}

#[test]
fn a_terminal_that_closes_ends_the_tree() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let script =
        "trap '' HUP INT TERM; echo ready; (setsid sleep 600 &); while :; do sleep 600; done";
    let started = pty.start(&world, &["-q", "--grace", "100ms", "--", "sh", "-c", script]);
    pty.wait_for("ready\r\n");
    assert!(world.living().len() >= 3, "the census sees nobody");
    pty.close();
    // SIGKILL after the grace: the command would not go.
    assert_eq!(started.end().code, 137);
    assert_eq!(world.living(), [0_u32; 0]);
    let ledger = world.ledger();
    assert!(ledger.contains(r#""ended_by":"user""#), "{ledger}");
}

#[test]
fn a_stop_from_outside_stops_and_sigcont_goes_on() {
    let world = World::new();
    let pty = Pty::open(24, 80);
    let started = pty.start(&world, &["-q", "--", "sh", "-c", COUNT]);
    pty.wait_for("ready\r\n");
    let state = || {
        let stat =
            fs::read_to_string(Path::new("/proc").join(started.pid().to_string()).join("stat"));
        stat.unwrap().rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    started.signal(Signal::SIGSTOP);
    wait_for("the supervisor stops", || state() == 'T');
    started.signal(Signal::SIGCONT);
    pty.press("\x03");
    pty.wait_for("INT 1\r\n");
    world.put("work/stop", "");
    assert_eq!(started.end().code, 0);
    assert_eq!(pty.mode(), Mode::Cooked);
}
