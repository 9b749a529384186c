//! What an agent plants for the supervisor, or for a later run.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use nix::sys::signal::Signal;

use crate::world::{World, wait_for};

#[test]
fn a_hidden_link_can_neither_be_removed_nor_replaced() {
    let world = World::new();
    fs::write(world.path("shared.env"), "KEY=SECRET\n").unwrap();
    symlink("../shared.env", world.path("work/.env")).unwrap();
    let script = "rm .env; echo evil > .env; mv .env away; ln -sf /etc .env; cat .env";
    let ran = world.call(&["-q", "--", "sh", "-c", script]);
    assert!(ran.text().contains("hidden from the jail"), "{ran:?}");
    let link = fs::read_link(world.path("work/.env")).unwrap();
    assert_eq!(link.to_str(), Some("../shared.env"));
    assert_eq!(fs::read_to_string(world.path("shared.env")).unwrap(), "KEY=SECRET\n");
}

#[test]
fn a_report_is_never_written_through_a_link_of_the_agents() {
    let world = World::new();
    fs::write(world.path("precious"), "keep").unwrap();
    let script = "ln -s ../precious report.json";
    let ran = world.call(&["-q", "--report", "report.json", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(fs::read_to_string(world.path("precious")).unwrap(), "keep");
    let report = fs::read_to_string(world.path("work/report.json")).unwrap();
    assert!(report.contains("\"exit_code\": 0"), "{report}");
}

#[test]
fn a_report_without_a_place_is_refused_before_anything_runs() {
    let world = World::new();
    let ran = world.call(&["--report", "/nonexistent/r.json", "--", "touch", "ran"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(!world.path("work/ran").exists());
}

#[test]
fn the_ledgers_own_directory_cannot_be_shown() {
    let world = World::new();
    assert_eq!(world.call(&["-q", "--", "true"]).code, 0);
    let state = world.path("home/.local/state/kvro-jail").display().to_string();
    for flag in ["--read", "--write"] {
        let ran = world.call(&["-q", flag, &state, "--", "touch", "ran"]);
        assert_eq!(ran.code, 125, "{ran:?}");
        assert!(ran.notes.contains("cannot be shown"), "{ran:?}");
    }
    assert!(!world.path("work/ran").exists());
}

#[test]
fn a_name_that_is_not_utf_8_stops_no_later_run() {
    let world = World::new();
    // The directory is an agent's; the file in it comes later, and from the host.
    assert_eq!(world.jail(r"mkdir $(printf '\377')").code, 0);
    let odd = world.path("work").join(OsStr::from_bytes(b"\xff"));
    fs::write(odd.join(".env"), "SECRET").unwrap();
    let ran = world.call(&["-q", "--", "sh", "-c", "cat */.env"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.text().contains("hidden from the jail"), "{ran:?}");
}

#[test]
fn one_sigterm_ends_a_command_that_ignores_it() {
    let world = World::new();
    let script = "trap '' TERM; touch ~/ready; while :; do sleep 1; done";
    let started =
        world.started(world.program(&["-q", "--grace", "100ms", "--", "sh", "-c", script]));
    let home = world.path("home");
    let is_ready = || {
        world.tool("find".as_ref()).arg(&home).output().is_ok_and(|found| {
            String::from_utf8_lossy(&found.stdout).lines().any(|line| line.ends_with("/home/ready"))
        })
    };
    wait_for("the command runs", is_ready);
    started.signal(Signal::SIGTERM);
    assert_eq!(started.end().code, 137);
    assert!(world.living().is_empty());
}
