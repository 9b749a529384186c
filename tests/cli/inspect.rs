//! The subcommands that only look: each is wired to what it is about.

use serde_json::{Value, json};

use crate::world::World;

#[test]
fn the_doctor_tries_what_it_says() {
    let world = World::new();
    let ran = world.call(&["doctor", "--json"]);
    let diagnosis = ran.json();
    let checks = diagnosis["checks"].as_array().unwrap();
    let names: Vec<&str> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    let known = ["namespaces", "landlock", "apparmor", "resources", "overlay", "ipv6", "state"];
    assert_eq!(names, known);
    for check in checks {
        let status = check["status"].as_str().unwrap();
        assert!(["ok", "limited", "missing"].contains(&status), "{check}");
        // Whatever is not as it should be comes with what to do.
        assert_eq!(check.get("fix").is_some(), status != "ok", "{check}");
    }
    // What the doctor promises is what a run gets.
    let is_full = diagnosis["level"] == "full";
    assert_eq!(ran.code, i32::from(!is_full));
    assert_eq!(world.call(&["-q", "--", "true"]).code, if is_full { 0 } else { 125 });
    let shown = world.call(&["doctor"]);
    assert_eq!(shown.code, ran.code);
    assert!(names.iter().all(|name| shown.text().contains(name)), "{}", shown.text());
}

#[test]
fn each_question_is_answered_with_the_rule() {
    let world = World::new();
    world.put("work/.env", "KEY=1\n");
    let mut story = String::new();
    for question in [
        ["host", "api.anthropic.com"],
        ["host", "denied.example:8080"],
        ["path", ".env"],
        ["path", "infra/production/main.tf"],
        ["path", "src/main.rs"],
        ["path", "/etc/shadow"],
        ["env", "LANG"],
        ["env", "AWS_SECRET_ACCESS_KEY"],
    ] {
        let ran = world.call(&[&["explain"], &question[..]].concat());
        assert_eq!(ran.notes, "", "{question:?}");
        story += &format!("### {}\nexit {}\n{}\n", question.join(" "), ran.code, ran.text());
    }
    world.snapshot("explained", &story);
    let ran = world.call(&["why", "--json", "host", "denied.example"]);
    assert_eq!(ran.json()["about"], "denied.example:443", "{ran:?}");
}

#[test]
fn a_policy_is_written_checked_and_shown() {
    let world = World::new();
    let written = world.call(&["policy", "init"]);
    let file = world.path("work/kvro-jail.toml");
    assert_eq!((written.code, written.text()), (0, &*format!("wrote {}\n", file.display())));
    assert_eq!(world.call(&["policy", "init"]).code, 1);
    assert_eq!(world.call(&["policy", "check"]).code, 0);
    assert_eq!(world.call(&["-q", "--", "true"]).code, 0);

    let shown = world.call(&["policy", "show", "--json"]).json();
    assert_eq!(shown["workspace"], json!(world.path("work")));
    assert_eq!((&shown["profile"], &shown["warnings"]), (&json!("generic"), &json!([])));
    assert!(world.call(&["policy", "show"]).text().contains("[fs]"));

    world.put("work/kvro-jail.toml", "version = 1\n[fs]\nhidee = []\n");
    let broken = world.call(&["policy", "check"]);
    assert_eq!(broken.code, 1, "{broken:?}");
    assert!(format!("{}{}", broken.text(), broken.notes).contains("kvro-jail.toml:3:1"));
}

#[test]
fn profiles_are_listed_and_shown() {
    let world = World::new();
    let listed = world.call(&["profile", "list"]);
    assert_eq!((listed.code, &*listed.notes), (0, ""));
    for name in ["claude", "codex", "generic", "rust", "node", "python"] {
        assert!(listed.lines().iter().any(|line| line.starts_with(name)), "{}", listed.text());
    }
    let shown = world.call(&["profile", "show", "claude"]);
    assert_eq!((shown.code, shown.text().contains(".claude")), (0, true), "{shown:?}");
    assert_eq!(world.call(&["profile", "show", "nobody"]).code, 1);
}

#[test]
fn what_is_on_record_is_listed_shown_and_verified() {
    let world = World::new();
    assert_eq!(world.call(&["ledger", "verify"]).code, 2, "there is nothing yet");
    let (_, report) = world.report(&["-q", "--", "sh", "-c", "exit 3"]);
    let [run] = &*world.runs() else { panic!("{:?}", world.runs()) };

    let listed = world.call(&["ledger", "list", "--json"]).json();
    assert!(listed.to_string().contains(&**run), "{listed}");
    let table = world.call(&["ledger", "list"]);
    assert!(table.text().contains(&**run), "{table:?}");

    let entries = world.call(&["ledger", "show", "last", "--json"]);
    assert_eq!(entries.text(), world.ledger());
    let events: Vec<String> = entries
        .lines()
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().into())
        .collect();
    let expected = [
        "run.started",
        "isolation.applied",
        "door.opened",
        "process.started",
        "process.exited",
        "run.ended",
    ];
    assert_eq!(events, expected);
    let tail = world.call(&["ledger", "tail"]);
    assert_eq!((tail.code, tail.text().contains("run.ended")), (0, true), "{tail:?}");
    // One report, whether it was written at the end or is read again later.
    assert_eq!(world.call(&["ledger", "show", run, "--report"]).json(), report);

    let verified = world.call(&["ledger", "verify", "--json"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.json().to_string().contains(&**run), "{verified:?}");
    assert_eq!(world.call(&["ledger", "verify", run]).code, 0);

    let file = world.state().join("runs").join(run).join("ledger.jsonl");
    let changed = world.ledger().replace("exit 3", "exit 0");
    std::fs::write(&file, changed).unwrap();
    let broken = world.call(&["ledger", "verify"]);
    assert_eq!(broken.code, 1, "{broken:?}");
    assert_eq!(broken.lines()[0], format!("{run}  BROKEN at entry 1: was changed"));
}

#[test]
fn what_is_asked_about_reaches_the_terminal_harmless() {
    let world = World::new();
    let ran = world.call(&["explain", "path", "a\u{1b}[2Jb"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.text().contains('\u{1b}') && ran.text().contains("[2Jb"), "{ran:?}");
}
