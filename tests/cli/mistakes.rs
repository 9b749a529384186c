//! Bad input: every mistake names its place and says what to do, with 125 for a run and 2 for
//! another subcommand, and nothing is started.

use std::fmt::Write as _;
use std::fs;

use crate::world::{Ran, World};

/// The whole answer to a mistake, as a snapshot holds it.
fn answer(story: &mut String, title: &str, ran: &Ran) {
    assert_eq!(ran.out, b"", "{title}: {ran:?}");
    writeln!(story, "### {}\nexit {}\n{}", title.trim_end(), ran.code, ran.notes).unwrap();
}

/// A run with one of `mistakes` in its policy file starts nothing; what is said is a snapshot.
fn refused(snapshot: &str, mistakes: &[&str]) {
    let world = World::new();
    let mut story = String::new();
    for mistake in mistakes {
        let version = if mistake.starts_with("version") { "" } else { "version = 1\n" };
        let policy = world.put("policy.toml", &format!("{version}{mistake}\n"));
        let ran = world.call(&["--policy", policy.to_str().unwrap(), "--", "touch", "started"]);
        assert_eq!(ran.code, 125, "{mistake}: {ran:?}");
        answer(&mut story, mistake, &ran);
    }
    world.snapshot(snapshot, &story);
    assert_eq!(world.runs(), [""; 0]);
    assert!(!world.path("work/started").exists());
}

#[test]
fn an_unknown_word_in_a_policy_starts_nothing() {
    refused(
        "unknown_words",
        &[
            "[fs]\nhidee = [\"a\"]",
            "[file]\nhide = [\"a\"]",
            "[net]\nmode = \"open\"",
            "[limits]\non_limit = \"warn\"",
            "[isolation]\nrequire = \"most\"",
            "extends = [\"builtin:nothing\"]",
            "[[net.rule]]\nhost = \"api.github.com\"\nverbs = [\"GET\"]",
        ],
    );
}

#[test]
fn a_wrong_type_in_a_policy_starts_nothing() {
    refused(
        "wrong_types",
        &[
            "[fs]\nhide = \"a\"",
            "[fs]\nhide = [3]",
            "[limits]\nmax_turns = \"many\"",
            "[limits]\nmax_usd = 5.0",
            "[net]\npublish = [\"http\"]",
            "fs = 3",
        ],
    );
}

#[test]
fn a_bad_word_in_a_policy_starts_nothing() {
    refused(
        "bad_words",
        &[
            "[fs]\nhide = [\"fine\", \"a[b\"]",
            "[fs]\nhide = [\"**\"]",
            "[fs]\nprotect = [\"../x\"]",
            "[fs]\nwrite = [\"/\"]",
            "[net]\nallow = [\"https://x.example/\"]",
            "[net]\nallow = [\"x.example:70000\"]",
            "[net]\ndanger_private = [\"127.0.0.1\"]",
            "[net.connect_to]\n\"a.example:443\" = \"b\"",
            "[limits]\nmax_usd = \"5,00\"",
            "[limits]\nmax_wall = \"45\"",
            "[limits]\nmax_turns = -1",
            "[limits]\nwarn_at = [101]",
            "[resources]\nmemory = \"4X\"",
            "[resources]\ncpus = \"0\"",
        ],
    );
}

#[test]
fn a_policy_that_is_no_toml_starts_nothing() {
    refused(
        "no_toml",
        &[
            "[fs",
            "[fs]\nhide = [\"a\", ",
            "hide = ",
            "[fs]\n[fs]",
            "version = 2",
            "version = \"1\"",
        ],
    );
}

#[test]
fn a_policy_that_cannot_be_read_starts_nothing() {
    let world = World::new();
    let mut story = String::new();
    fs::create_dir(world.path("directory.toml")).unwrap();
    fs::write(world.path("latin.toml"), b"version = 1 # \xe4\n").unwrap();
    for name in ["missing.toml", "directory.toml", "latin.toml"] {
        let policy = world.path(name);
        let ran = world.call(&["--policy", policy.to_str().unwrap(), "--", "touch", "started"]);
        assert_eq!(ran.code, 125, "{name}: {ran:?}");
        answer(&mut story, name, &ran);
    }
    world.snapshot("unreadable_policies", &story);
    assert_eq!(world.runs(), [""; 0]);
}

#[test]
fn a_broken_file_that_was_found_is_fatal_too() {
    let world = World::new();
    for name in ["work/kvro-jail.toml", "home/.config/kvro-jail/policy.toml"] {
        let file = world.put(name, "version = 1\n[fs]\nhidee = []\n");
        let ran = world.call(&["--", "touch", "started"]);
        assert_eq!(ran.code, 125, "{ran:?}");
        assert!(ran.notes.contains(&format!("--> {}:3:1", file.display())), "{ran:?}");
        fs::remove_file(file).unwrap();
    }
    assert_eq!(world.runs(), [""; 0]);
    assert!(!world.path("work/started").exists());
}

#[test]
fn a_bad_word_in_a_flag_starts_nothing() {
    let world = World::new();
    let mut story = String::new();
    for flags in [
        "--bogus",
        "--max-usd=5,00",
        "--max-turns=-1",
        "--max-wall=45",
        "--grace=soon",
        "--memory=4X",
        "--cpus=0",
        "--hide=a[b",
        "--protect=../x",
        "--allow-host=https://x.example/",
        "--net=open",
        "--on-limit=warn",
        "--warn-at=80,101",
        "--env==x",
        "--require=most",
        "--profile=nobody",
        "--no-net --net=proxy",
    ] {
        let args: Vec<&str> = flags.split(' ').chain(["--", "touch", "started"]).collect();
        for args in [args.clone(), [&["run"], &*args].concat()] {
            let ran = world.call(&args);
            assert_eq!(ran.code, 125, "{args:?}: {ran:?}");
            if args[0] != "run" {
                answer(&mut story, flags, &ran);
            }
        }
    }
    let ran = world.call(&[]);
    assert_eq!(ran.code, 125, "{ran:?}");
    answer(&mut story, "no command", &ran);
    world.snapshot("bad_flags", &story);
    assert_eq!(world.runs(), [""; 0]);
    assert!(!world.path("work/started").exists());
}

#[test]
fn what_stands_behind_the_command_is_the_commands() {
    let world = World::new();
    let ran = world.call(&["-q", "echo", "--bogus", "-q", "--", "--help"]);
    assert_eq!((ran.code, ran.text()), (0, "--bogus -q -- --help\n"));
}

#[test]
fn a_wrong_flag_of_another_subcommand_is_2() {
    let world = World::new();
    for args in [
        &["ps", "--bogus"][..],
        &["kill"],
        &["doctor", "extra"],
        &["explain"],
        &["explain", "host"],
        &["policy", "paint"],
        &["profile", "--bogus"],
        &["ledger", "verify", "--bogus"],
        &["completions", "cmd.exe"],
        &["man", "--bogus"],
    ] {
        let ran = world.call(args);
        assert_eq!((ran.code, &*ran.out), (2, &b""[..]), "{args:?}: {ran:?}");
        let says = |words| ran.notes.contains(words);
        assert!(says("error: ") || says("Usage: kvro-jail "), "{ran:?}");
    }
}

#[test]
fn a_workspace_that_no_agent_may_work_in_starts_nothing() {
    let world = World::new();
    world.put("work/file", "");
    fs::create_dir_all(world.path("home/.ssh")).unwrap();
    let mut story = String::new();
    let home = world.path("home").display().to_string();
    let (keys, missing) = (format!("{home}/.ssh"), format!("{home}/missing"));
    let state = format!("{home}/.local");
    fs::create_dir(&state).unwrap();
    for place in ["/", "/usr", "/etc", "/tmp", "/var/tmp", &home, &keys, &state, &missing, "file"] {
        let ran = world.call(&["-C", place, "--", "touch", "started"]);
        assert_eq!(ran.code, 125, "{place}: {ran:?}");
        answer(&mut story, place, &ran);
    }
    world.snapshot("refused_workspaces", &story);
    assert_eq!(world.runs(), [""; 0]);
}

#[test]
fn a_rule_over_the_whole_workspace_is_refused_and_not_followed() {
    let world = World::new();
    let mut story = String::new();
    for flags in [["--hide", "."], ["--hide", "**"], ["--hide", "../**"], ["--protect", "."]] {
        let ran = world.call(&[&flags[..], &["--", "touch", "started"]].concat());
        assert_eq!(ran.code, 125, "{flags:?}: {ran:?}");
        answer(&mut story, &flags.join(" "), &ran);
    }
    world.snapshot("rules_over_everything", &story);
    assert_eq!(world.runs(), [""; 0]);
}
