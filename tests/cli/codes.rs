//! The exit codes that come from the command, and those of a command that never ran.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::world::World;

#[test]
fn the_public_table_is_what_it_was() {
    insta::assert_snapshot!("exit_codes", kvro_jail::failure::EXIT_CODES);
}

#[test]
fn a_commands_own_code_is_the_programs() {
    let world = World::new();
    // 125 too: the report tells it from a jail that could not be set up.
    for code in [0, 1, 125, 255] {
        let (ran, report) = world.report(&["-q", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((ran.code, &*ran.notes), (code, ""));
        assert_eq!(report["exit_code"], code);
        assert_eq!(report["ended_by"], "exit");
        assert_eq!(report["reason"], format!("the command exited with {code}"));
    }
}

#[test]
fn a_signal_that_ends_the_command_is_128_and_its_number() {
    let world = World::new();
    for (name, number) in [("ABRT", 6), ("KILL", 9), ("TERM", 15)] {
        let (ran, report) = world.report(&["-q", "--", "sh", "-c", &format!("kill -{name} $$")]);
        assert_eq!((ran.code, &*ran.notes), (128 + number, ""));
        assert_eq!(report["exit_code"], 128 + number);
        assert_eq!(report["ended_by"], "signal");
        assert_eq!(report["reason"], format!("signal {number} ended the command"));
    }
}

#[test]
fn a_command_that_is_not_there_is_127() {
    let world = World::new();
    let (ran, report) = world.report(&["-q", "--", "no-such-command"]);
    assert_eq!(ran.code, 127);
    let words = "cannot run no-such-command: No such file or directory (os error 2)";
    assert_eq!(ran.notes, format!("kvro-jail: error: {words}\n"));
    assert_eq!((&report["exit_code"], &report["ended_by"]), (&127.into(), &"setup".into()));
    assert_eq!(report["reason"], words);
    assert_eq!(world.call(&["-q", "--", "/no/such/command"]).code, 127);
}

#[test]
fn a_command_that_cannot_be_run_is_126() {
    let world = World::new();
    let file = world.put("work/plain", "no program\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (ran, report) = world.report(&["-q", "--", "./plain"]);
    assert_eq!(ran.code, 126);
    let words = "cannot run ./plain: Permission denied (os error 13)";
    assert_eq!(ran.notes, format!("kvro-jail: error: {words}\n"));
    assert_eq!((&report["exit_code"], &report["ended_by"]), (&126.into(), &"setup".into()));
    assert_eq!(report["reason"], words);
    assert_eq!(world.call(&["-q", "--", "/usr"]).code, 126);

    // The control: the same file runs once it may.
    fs::write(&file, "#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(world.call(&["-q", "--", "./plain"]).code, 7);
}

#[test]
fn a_command_inside_sees_the_codes_that_it_would_see_outside() {
    let world = World::new();
    let script = "no-such-command 2>/dev/null; echo $?; /usr 2>/dev/null; echo $?; \
                  sh -c 'kill -KILL $$'; echo $?; (exit 255); echo $?";
    assert_eq!(world.jail(script).lines(), ["127", "126", "137", "255"]);
}
