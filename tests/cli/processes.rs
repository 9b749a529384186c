//! The record of processes: what ran and how it ended, whatever the agent says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::world::{Ran, World};

/// The processes of the last run.
fn record(world: &World) -> Value {
    let shown = world.call(&["ledger", "show", "last", "--processes", "--json"]);
    assert_eq!((shown.code, &*shown.notes), (0, ""), "{shown:?}");
    shown.json()
}

/// Runs `script` to the exit code `code`, and gives the record of it.
fn recorded(world: &World, script: &str, code: i32) -> Value {
    let ran: Ran = world.jail(script);
    assert_eq!((ran.code, &*ran.notes), (code, ""), "{ran:?}");
    record(world)
}

fn processes(record: &Value) -> &[Value] {
    record["processes"].as_array().unwrap()
}

/// All that was run, as arguments and how the process ended.
fn programs(record: &Value) -> Vec<(String, Value)> {
    let of = |process: &Value| {
        let end = match process["status"].as_str() {
            Some("exited") => process["process.exit.code"].clone(),
            Some("signaled") => process["signal"].clone(),
            other => json!(other),
        };
        let programs = process["programs"].as_array().unwrap().clone();
        programs.into_iter().map(move |program| {
            let args: Vec<&str> = program["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| arg.as_str().unwrap())
                .collect();
            (args.join(" "), end.clone())
        })
    };
    processes(record).iter().flat_map(of).collect()
}

fn executable(world: &World, name: &str, text: &str, mode: u32) {
    let path = world.put(&format!("work/{name}"), text);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_ran_is_shown_as_a_tree() {
    let world = World::new();
    let script = "sleep 0.01; (env true; exit 3); sh -c 'kill -TERM $$'; exec env sh -c 'exit 5'";
    assert_eq!(world.jail(script).code, 5);
    let shown = world.call(&["ledger", "show", "last", "--processes"]);
    let mut tree = shown.text().to_owned();
    // Which shell `sh` is and where it lies differs from machine to machine.
    let sh = fs::read_link("/proc/self/root/bin/sh").unwrap_or_else(|_| "sh".into());
    tree = tree.replace(&format!("{} [sh]", sh.file_name().unwrap().display()), "sh");
    let tree = without_times(&tree);
    world.snapshot("processes", &tree);
    // Whoever reads the entries finds the same.
    let record = record(&world);
    assert_eq!(processes(&record).len(), tree.lines().filter(|l| l.contains("[time]")).count());
    for program in processes(&record).iter().flat_map(|p| p["programs"].as_array().unwrap()) {
        assert_eq!(program["sha256"].as_str().unwrap().len(), 64, "{program}");
        assert_eq!(program["cwd"], json!(world.path("work")), "{program}");
    }
}

/// The tree with `[time]` for what took so long, and without the directory of each program.
fn without_times(tree: &str) -> String {
    let line = |line: &str| {
        let line = line.replace("/usr/bin/", "").replace("/bin/", "");
        match line.split_once(" s  ") {
            Some((before, after)) => {
                let (status, _) = before.rsplit_once("  ").unwrap();
                format!("{}  [time]  {after}\n", status.trim_end())
            }
            None => format!("{}\n", line.trim_end()),
        }
    };
    tree.lines().map(line).collect()
}

#[test]
fn who_says_that_the_tests_pass_and_ran_none_has_no_test_on_record() {
    let world = World::new();
    executable(&world, "check", "#!/bin/sh\nexit 1\n", 0o755);
    let checks = |record: &Value| -> Vec<Value> {
        let is_check = |(args, _): &(String, Value)| args == "/bin/sh ./check";
        programs(record).into_iter().filter(is_check).map(|(_, end)| end).collect()
    };
    let lie = recorded(&world, "echo ./check; echo all tests pass", 0);
    assert_eq!(checks(&lie), [json!(null); 0]);
    assert_eq!(lie["missed"], json!([]));
    // One that ran them has their real end on record, whatever it says itself.
    let other_lie = recorded(&world, "./check; echo all tests pass", 0);
    assert_eq!(checks(&other_lie), [json!(1)]);
    executable(&world, "check", "#!/bin/sh\nexit 0\n", 0o755);
    assert_eq!(checks(&recorded(&world, "./check && echo all tests pass", 0)), [json!(0)]);
}

#[test]
fn a_program_that_could_not_be_run_is_not_on_record() {
    let world = World::new();
    executable(&world, "not-executable", "#!/bin/sh\nexit 0\n", 0o644);
    executable(&world, "no-interpreter", "#!/nonexistent/sh\nexit 0\n", 0o755);
    // Each process asks for programs that are not there before one that is.
    let script = "./not-executable; ./no-interpreter; env no-such-program; \
                  PATH=/nonexistent:/proc:/usr/bin:/bin env env true x; true";
    let ran = world.jail(script);
    assert_eq!(ran.code, 0, "{ran:?}");
    let record = record(&world);
    let programs = programs(&record);
    let expected = [
        (&*format!("sh -c {script}"), json!(0)),
        ("env no-such-program", json!(127)),
        ("env env true x", json!(0)),
        ("env true x", json!(0)),
        ("true x", json!(0)),
    ];
    let expected = expected.map(|(args, end)| (args.to_owned(), end));
    assert_eq!((programs, &record["missed"]), (expected.to_vec(), &json!([])));
}

#[test]
fn a_child_that_is_killed_at_once_has_its_status_or_none() {
    let world = World::new();
    let script = "n=0; while [ $n -lt 40 ]; do \
                      sleep 60 & p=$!; \
                      until read -r name </proc/$p/comm && [ $name = sleep ]; do :; done; \
                      kill -KILL $p; wait $p 2>/dev/null; n=$((n+1)); \
                  done; true";
    let ran = world.jail(script);
    assert_eq!(ran.code, 0, "{ran:?}");
    let record = record(&world);
    let programs = programs(&record);
    let ends = programs.iter().filter(|(args, _)| args == "sleep 60").map(|(_, end)| end);
    let killed = ends.filter(|end| [json!("SIGKILL"), json!("unknown")].contains(end)).count();
    // Some are dead before anybody could look, and these are counted.
    let seen_dead = programs.iter().filter(|(args, _)| args.is_empty()).count();
    let missed = record["missed"].as_array().unwrap();
    let missed: u64 = missed.iter().map(|missed| missed["count"].as_u64().unwrap()).sum();
    let missed = usize::try_from(missed).unwrap();
    assert_eq!(killed + seen_dead + missed, 40, "{record:#}");
    assert_eq!(programs.len(), 1 + killed + seen_dead, "{record:#}");
}

#[test]
fn arguments_that_are_not_utf_8_are_on_record_and_paint_no_terminal() {
    let world = World::new();
    let script = r#"env true "$(printf '\377\033[2J')"; true"#;
    let record = recorded(&world, script, 0);
    assert!(programs(&record).contains(&("true \u{fffd}\x1b[2J".to_owned(), json!(0))));
    for options in [&["--processes"][..], &["--processes", "--json"]] {
        let shown = world.call(&[&["ledger", "show", "last"], options].concat());
        assert!(
            !shown.text().contains('\x1b') && shown.text().contains("001b")
                || shown.text().contains("u{1b}"),
            "{shown:?}"
        );
    }
}

#[test]
fn very_many_arguments_are_cut_between_two_and_it_is_said() {
    let world = World::new();
    let script = "env true $(seq 2000); true";
    let record = recorded(&world, script, 0);
    let all = processes(&record).iter().flat_map(|process| process["programs"].as_array().unwrap());
    let long: Vec<&Value> = all.filter(|program| program["omitted_args_bytes"] != 0).collect();
    assert_eq!(long.len(), 2, "{record:#}");
    for program in long {
        let args: Vec<&str> =
            program["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        let kept: usize = args.iter().map(|arg| arg.len() + 1).sum();
        let all: usize = (1..=2000).map(|n: i32| n.to_string().len() + 1).sum();
        let names = args.iter().take_while(|arg| arg.parse::<i32>().is_err());
        let names: usize = names.map(|arg| arg.len() + 1).sum();
        assert_eq!(program["omitted_args_bytes"], json!(all + names - kept));
        let numbers: Vec<i32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
        assert_eq!(numbers, (1..=*numbers.last().unwrap()).collect::<Vec<_>>());
    }
}

#[test]
fn a_thousand_processes_at_once_are_accounted_for_one_by_one() {
    let world = World::new();
    let record = recorded(&world, "seq 10000 | xargs -P 8 -n 10 env true; true", 0);
    let ended = processes(&record).iter().filter(|process| process["status"] == "exited").count();
    // The shell, seq and xargs besides.
    let all = (processes(&record).len(), ended, &record["missed"]);
    assert_eq!(all, (1003, 1003, &json!([])));
    let runs = programs(&record);
    for program in ["env true ", "true "] {
        let ran = runs.iter().filter(|(args, end)| args.starts_with(program) && *end == json!(0));
        assert_eq!(ran.count(), 1000, "{program}");
    }
}
