//! When we end a run: the code names the cause, whatever the command says at that moment, and
//! nobody outlives it.

use std::fs;
use std::path::Path;

use nix::unistd::{Gid, Uid};
use serde_json::{Value, json};

use crate::stub::{Settings, Stub};
use crate::world::{World, program, wait_for};

/// Asks its model until it is stopped, and once more after that.
const ASK: &str = r#"curl -sS -o answer -w '%{http_code}\n' https://api.anthropic.com/v1/messages \
    -H 'content-type: application/json' -H 'x-api-key: none' -H 'anthropic-version: 2023-06-01' \
    -d '{"model":"claude-opus-5-5","max_tokens":64,"messages":[{"role":"user","content":"hi"}]}'"#;

#[test]
fn wall_time_is_124_even_for_a_command_that_says_0() {
    let world = World::new();
    for command in ["sleep 600", "trap 'exit 0' TERM; sleep 600 & wait"] {
        let (ran, report) = world.report(&[
            "-q",
            "--max-wall",
            "300ms",
            "--grace",
            "100ms",
            "--",
            "sh",
            "-c",
            command,
        ]);
        assert_eq!((ran.code, &*ran.notes), (124, ""), "{command}");
        assert_eq!((&report["exit_code"], &report["ended_by"]), (&json!(124), &json!("wall")));
        assert_eq!(report["reason"], "the wall time of 0.3 s is over");
        assert_eq!(world.living(), [0_u32; 0]);
    }
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_after_the_grace() {
    let world = World::new();
    let (ran, report) = world.report(&[
        "-q",
        "--max-wall",
        "300ms",
        "--grace",
        "100ms",
        "--",
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 600; done",
    ]);
    assert_eq!((ran.code, &report["ended_by"]), (124, &json!("wall")));
    assert!(world.ledger().contains(r#""signal":"SIGKILL""#), "{}", world.ledger());
    assert_eq!(world.living(), [0_u32; 0]);
}

#[test]
fn a_ceiling_is_122_for_a_command_that_goes_on() {
    limited("while :; do ASK; done");
}

#[test]
fn a_ceiling_is_122_for_a_command_that_says_0() {
    limited("ASK; ASK; exit 0");
}

/// Runs `script` under a ceiling of one turn.
fn limited(script: &str) {
    let world = World::new();
    fs::create_dir(world.path("provider")).unwrap();
    let directory = world.path("provider").display().to_string();
    let words = ["--dir", &directory, "--mode", "tool-loop"].map(str::to_owned);
    let stub = Stub::start(Settings::from_arguments(words).unwrap()).unwrap();
    let ready = stub.ready();
    let policy = world.put(
        "policy.toml",
        &format!(
            "version = 1\n\
         [net]\n\
         allow = [\"api.anthropic.com\"]\n\
         danger_private = [\"127.0.0.1/32\"]\n\
         extra_ca = [\"{}\"]\n\
         connect_to = {{ \"api.anthropic.com:443\" = \"127.0.0.1:{}\" }}\n",
            ready.ca.display(),
            ready.tls
        ),
    );
    let script = script.replace("ASK", ASK);
    let (ran, report) = world.report(&[
        "--policy",
        policy.to_str().unwrap(),
        "--max-turns",
        "1",
        "--grace",
        "100ms",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(ran.code, 122, "{ran:?}");
    let (accepted, refused) = (ran.lines()[0], ran.lines()[1]);
    assert_eq!((accepted, refused), ("200", "402"), "{ran:?}");
    assert_eq!((stub.totals().generations, stub.totals().rejected), (1, 0), "{ran:?}");
    let said: Vec<&Value> = ["exit_code", "ended_by", "turns"].map(|key| &report[key]).into();
    assert_eq!(said, [&json!(122), &json!("limit"), &json!(1)]);
    let reason = "kvro-jail: turn limit reached (1 of 1); raise it with --max-turns";
    assert_eq!(report["reason"], reason);
    // The cause is in our last words, too.
    let last = ran.notes.lines().find(|line| line.contains("exit code 122")).unwrap();
    assert!(last.ends_with("turn limit reached (1 of 1); raise it with --max-turns"), "{last}");
    assert_eq!(world.living(), [0_u32; 0]);
}

/// Fills the disk that the ledger lies on as soon as the agent is at work.
const FULL_DISK: &str = r#"
    (until [ -e started ]; do sleep 0.02; done
     cat /dev/zero 2>/dev/null >"$HOME/.local/fill"; touch full) &
    "$1" --report "$2" --grace 100ms -- bash -c '
        touch started
        until [ -e full ]; do sleep 0.02; done
        # Each is an event of its own.
        for ((n = 0; ; n++)); do : 2>/dev/null </dev/tcp/203.0.113.$((n % 256))/$((9000 + n)); done'
    code=$?
    cat "$HOME"/.local/state/kvro-jail/runs/*/ledger.jsonl
    exit $code"#;

#[test]
fn a_ledger_that_cannot_be_written_any_more_is_121_and_ends_the_tree() {
    let world = World::new();
    fs::create_dir(world.path("home/.local")).unwrap();
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let mount = format!(
        r#"mount -t tmpfs -o size=2m,mode=700 tmpfs "$HOME/.local" && {}"#,
        if uid.is_root() {
            r#"exec sh -c "$0" sh "$1" "$2""#.to_owned()
        } else {
            // Back from the root of this namespace to the caller.
            format!(r#"exec unshare --map-user={uid} --map-group={gid} sh -c "$0" sh "$1" "$2""#)
        }
    );
    let mut command = world.tool(Path::new("unshare"));
    if !uid.is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "--propagation", "private", "sh", "-c", &mount, FULL_DISK]);
    command.arg(program()).arg(world.path("report.json"));
    let ran = world.finish(command);
    assert_eq!(ran.code, 121, "{ran:?}");
    let entries: Vec<Value> =
        ran.lines().into_iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    // What could not be recorded is not passed over, nor how the run ended.
    let [.., alert, last] = &*entries else { panic!("{ran:?}") };
    assert_eq!(alert["data"]["what"], "ledger_incomplete");
    let detail = alert["data"]["detail"].as_str().unwrap();
    assert!(detail.ends_with("No space left on device (os error 28)"), "{detail}");
    assert_eq!((&last["event"], &last["data"]["exit_code"]), (&json!("run.ended"), &json!(121)));
    assert!(ran.notes.contains("kvro-jail: error: the ledger is not complete: "), "{ran:?}");
    let report: Value =
        serde_json::from_slice(&fs::read(world.path("report.json")).unwrap()).unwrap();
    assert_eq!((&report["exit_code"], &report["ended_by"]), (&json!(121), &json!("failure")));
    assert_eq!(world.living(), [0_u32; 0]);
}

#[test]
fn a_run_can_be_seen_and_ended_from_outside() {
    let world = World::new();
    assert_eq!(world.call(&["ps", "--json"]).text(), "[]\n");
    let mut command = world.program(&["-q", "--report"]);
    command.arg(world.path("report.json")).args(["--", "sh", "-c", "touch started; sleep 600"]);
    let started = world.started(command);
    wait_for("the command runs", || world.path("work/started").exists());

    let alive = world.call(&["ps", "--json"]).json();
    let [run] = &*world.runs() else { panic!("{:?}", world.runs()) };
    let work = world.path("work");
    let mut expected = alive.clone();
    expected[0]["run"] = json!(run);
    expected[0]["pid"] = json!(started.pid().as_raw());
    expected[0]["command"] = json!(["sh", "-c", "touch started; sleep 600"]);
    expected[0]["workspace"] = json!(work);
    expected[0]["turns"] = json!(0);
    expected[0]["cost_usd"] = json!("0");
    assert_eq!((alive.as_array().unwrap().len(), &alive), (1, &expected));
    let shown = world.call(&["ps"]);
    assert!(shown.text().contains(run) && shown.lines().len() == 1, "{shown:?}");

    let nobody = world.call(&["kill", "no-such-run"]);
    assert_eq!((nobody.code, nobody.text()), (1, ""), "{nobody:?}");
    let killed = world.call(&["kill", run]);
    assert_eq!((killed.code, killed.text()), (0, &*format!("ending {run}\n")));
    // The command's own end decides: SIGTERM.
    assert_eq!(started.end().code, 143);
    let report: Value =
        serde_json::from_slice(&fs::read(world.path("report.json")).unwrap()).unwrap();
    assert_eq!((&report["exit_code"], &report["ended_by"]), (&json!(143), &json!("user")));
    assert_eq!(world.living(), [0_u32; 0]);
    assert_eq!(world.call(&["ps", "--json"]).text(), "[]\n");
    let again = world.call(&["kill", run]);
    assert_eq!((again.code, again.text()), (1, ""), "{again:?}");
}
