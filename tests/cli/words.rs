//! What the program says about itself.

use std::fmt::Write as _;

use crate::world::World;

#[test]
fn both_helps_read_as_they_did() {
    let world = World::new();
    for (flag, name) in [("-h", "help_short"), ("--help", "help_long")] {
        let ran = world.call(&[flag]);
        assert_eq!((ran.code, &*ran.notes), (0, ""));
        world.snapshot(name, ran.text());
    }
}

#[test]
fn each_subcommand_explains_itself() {
    let world = World::new();
    let mut story = String::new();
    for words in [
        &["run"][..],
        &["doctor"],
        &["explain"],
        &["policy"],
        &["policy", "trust"],
        &["profile"],
        &["ledger"],
        &["ledger", "verify"],
        &["ps"],
        &["kill"],
        &["completions"],
    ] {
        let ran = world.call(&[words, &["-h"]].concat());
        assert_eq!((ran.code, &*ran.notes), (0, ""), "{words:?}");
        writeln!(story, "### {}\n{}", words.join(" "), ran.text()).unwrap();
    }
    world.snapshot("help_of_subcommands", &story);
}

#[test]
fn the_exit_codes_are_in_the_long_help() {
    let world = World::new();
    for args in [&["--help"][..], &["run", "--help"]] {
        let help = world.call(args);
        assert!(help.text().contains(kvro_jail::failure::EXIT_CODES), "{}", help.text());
    }
}

#[test]
fn the_version_is_the_packages() {
    let ran = World::new().call(&["--version"]);
    assert_eq!((ran.code, ran.text()), (0, concat!("kvro-jail ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn completions_and_the_manual_know_every_option() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = world.call(&["completions", shell]);
        assert_eq!((script.code, &*script.notes), (0, ""));
        assert!(script.text().contains("max-usd"), "{shell}");
        assert!(script.text().contains("kvro-jail"), "{shell}");
    }
    let manual = world.call(&["man"]);
    assert_eq!((manual.code, &*manual.notes), (0, ""));
    assert!(manual.text().contains(".TH kvro-jail 1"), "{}", manual.text());
    assert!(manual.text().contains(r"\-\-max\-usd"), "{}", manual.text());
}

#[test]
fn a_run_says_where_it_is_and_what_came_of_it() {
    let world = World::new();
    world.put("work/.env", "KEY=1\n");
    let ran = world.call(&["--no-net", "--", "sh", "-c", "cat .env >/dev/null; exit 3"]);
    assert_eq!((ran.code, &*ran.out), (3, &b""[..]));
    world.snapshot("a_run", &ran.notes);
}

#[test]
fn a_dry_run_shows_the_plan_and_leaves_nothing() {
    let world = World::new();
    world.put("work/.env", "KEY=1\n");
    world.put("work/infra/main.tf", "x\n");
    let before = listing(&world);
    let ran = world.call(&[
        "--dry-run",
        "--read",
        "/opt",
        "--deny-host",
        "evil.example",
        "--",
        "touch",
        "started",
    ]);
    assert_eq!((ran.code, &*ran.notes), (0, ""));
    // What is mounted of the system is this machine's; who the agent is, the caller's.
    let ours = ran.lines().into_iter().filter(|line| {
        !line.starts_with("user ") && (!line.starts_with("  ") || !is_the_machines(line))
    });
    let ours: Vec<&str> = ours.collect();
    world.snapshot("a_plan", &ours.join("\n"));
    assert_eq!(listing(&world), before);
}

fn is_the_machines(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    let mounts = ["read-only", "made", "link", "directory", "devices", "processes", "memory"];
    mounts.contains(&word) && !line.contains("/var/tmp/kvro-cli-")
}

/// The names of everything below the world.
fn listing(world: &World) -> Vec<String> {
    let mut find = world.tool("find".as_ref());
    find.arg(world.path(""));
    let mut names: Vec<String> = world.finish(find).text().lines().map(str::to_owned).collect();
    names.sort_unstable();
    names
}
