//! Pipes and files pass through untouched, and nobody waits for what will not come.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use crate::world::World;

/// Every byte, in an order that no translation survives.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn twenty_megabytes_of_any_bytes_pass_unchanged() {
    let world = World::new();
    let bytes = noise(20_000_000);
    let mut command = world.program(&["-q", "--", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = world.started(command);
    let (mut stdin, sent) = (started.stdin(), bytes.clone());
    // Closing the pipe is the end of the file inside.
    let sender = thread::spawn(move || stdin.write_all(&sent).unwrap());
    let ran = started.end();
    sender.join().unwrap();
    assert_eq!((ran.code, &*ran.notes), (0, ""));
    assert!(ran.out == bytes, "{} bytes came back, and not the same", ran.out.len());
}

#[test]
fn files_are_read_and_written_in_place() {
    let world = World::new();
    let (from, to) = (world.path("from"), world.path("to"));
    fs::write(&from, noise(100_000)).unwrap();
    let mut command = world.program(&["-q", "--", "cat"]);
    command.stdin(File::open(&from).unwrap()).stdout(File::create(&to).unwrap());
    command.stderr(Stdio::piped());
    assert_eq!(world.started(command).end().code, 0);
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
}

#[test]
fn our_words_are_on_stderr_and_only_when_wanted() {
    let world = World::new();
    let script = "printf 'out\\0\\r\\n'; printf 'err\\0\\r\\n' >&2";
    let quiet = world.jail(script);
    assert_eq!((&*quiet.out, &*quiet.notes), (&b"out\0\r\n"[..], "err\0\r\n"));

    let loud = world.call(&["--", "sh", "-c", script]);
    assert_eq!(loud.out, b"out\0\r\n");
    let ours: Vec<&str> = loud.notes.lines().filter(|line| *line != "err\0").collect();
    assert_eq!(ours.len(), 4, "{loud:?}");
    assert!(ours.iter().all(|line| line.starts_with("kvro-jail: ")), "{loud:?}");
}

#[test]
fn a_closed_stdin_is_an_empty_one() {
    let world = World::new();
    let mut command = world.tool(Path::new("sh"));
    command.args(["-c", r#"exec "$0" -q -- cat <&-"#]).arg(crate::world::program());
    let ran = world.finish(command);
    assert_eq!((ran.code, &*ran.out, &*ran.notes), (0, &b""[..], ""));
}

#[test]
fn a_reader_that_leaves_ends_the_command_with_sigpipe() {
    let world = World::new();
    let mut command = world.tool(Path::new("bash"));
    let script = r#""$0" -q -- yes | head -1; echo "${PIPESTATUS[0]}""#;
    command.args(["-c", script]).arg(crate::world::program());
    let ran = world.finish(command);
    assert_eq!((ran.lines(), &*ran.notes), (vec!["y", "141"], ""));
}

#[test]
fn a_background_child_with_the_streams_open_keeps_nobody_waiting() {
    let world = World::new();
    let ran = world.jail("sleep 600 >&2 & sleep 600 & exit 3");
    assert_eq!((ran.code, &*ran.out, &*ran.notes), (3, &b""[..], ""));
    assert_eq!(world.living(), [0_u32; 0]);
}

#[test]
fn without_a_terminal_there_is_none_inside() {
    let world = World::new();
    let mut command = world.tool(Path::new("setsid"));
    command.arg("--wait").arg(crate::world::program());
    command.args(["-q", "--", "sh", "-c", "tty; echo hi 2>/dev/null >/dev/tty || echo none"]);
    let ran = world.finish(command);
    assert_eq!((ran.lines(), ran.code), (vec!["not a tty", "none"], 0));
}
