//! What an agent leaves for others to run, and what becomes of it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::world::{Ran, Started, World, wait_for};

/// Everything that a host's tools would run or follow, where nothing of it is.
const PLANT: &str = r#"
    mkdir -p .vscode .husky nested/.git/objects nested/.git/refs .git/rebase-merge
    echo '{}' >.vscode/tasks.json
    echo evil >.husky/pre-commit
    mkdir -p .git/hooks && echo evil >.git/hooks/post-checkout
    echo ../evil >.git/commondir
    echo SECRET >.env.local
    echo '{}' >.mcp.json
    echo 'ref: refs/heads/main' >nested/.git/HEAD
    printf '[core]\n\tfsmonitor = evil\n' >nested/.git/config
    printf 'pick 1\nexec evil\n' >.git/rebase-merge/git-rebase-todo
    ln -s /etc etc
    echo work >src.txt
"#;

/// What is refused of it.
const REFUSED: [&str; 6] =
    [".env.local", ".git/commondir", ".git/hooks", ".husky", ".mcp.json", ".vscode"];

/// A protected name in a directory where nothing is guarded. There who made it cannot be told: an
/// agent that exchanges a string at the right moment, or the host.
const PLANTED: &str = "deep/kvro-jail.toml";

/// Says that everything is planted, and waits for the end.
const WAIT: &str = "mkdir deep; touch planted; until [ -e go ]; do sleep 0.02; done";

/// A repository without hooks or editor settings.
fn repository() -> World {
    let world = World::new();
    for words in [&["init", "-q", "-b", "main", "."][..], &["config", "user.name", "me"]] {
        git(&world, words);
    }
    fs::remove_dir_all(world.path("work/.git/hooks")).unwrap();
    world.put("work/infra/main.tf", "x");
    world
}

fn git(world: &World, words: &[&str]) -> Ran {
    let mut command = world.tool(Path::new("git"));
    command.args(words).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let ran = world.finish(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

/// What is there of `names` in `place`.
fn there<'n>(place: &Path, names: &[&'n str]) -> Vec<&'n str> {
    let is_there = |name: &&str| fs::symlink_metadata(place.join(name)).is_ok();
    names.iter().copied().filter(is_there).collect()
}

/// Starts a run that plants what it can, and plants the rest.
fn planting(world: &World, options: &[&str]) -> Started {
    let script = format!("{PLANT}\n{WAIT}");
    let mut words = options.to_vec();
    words.extend(["--", "sh", "-c", &script]);
    let mut command = world.program(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = world.started(command);
    wait_for("the agent has planted", || world.path("work/planted").exists());
    world.put(&format!("work/{PLANTED}"), "evil");
    fs::remove_file(world.path("work/planted")).unwrap();
    started
}

/// Where things of `run` are kept.
fn kept(world: &World, run: &str) -> PathBuf {
    world.state().join("quarantine").join(run)
}

/// The data of the events called `name`.
fn events(world: &World, name: &str) -> Vec<Value> {
    let entries = world.ledger();
    let entries = entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["event"] == name).map(|entry| entry["data"].clone()).collect()
}

fn alerts() -> Value {
    json!([
        {"what": "repository_runs_programs", "detail": "nested/.git: core.fsmonitor = evil"},
        {"what": "rebase_runs_commands", "detail": ".git/rebase-merge/git-rebase-todo: exec evil"},
        {"what": "link_leaves_workspace", "detail": "etc -> /etc"},
    ])
}

fn is_clean(world: &World, run: &str) {
    assert_eq!(there(&world.path("work"), &REFUSED), [""; 0]);
    assert_eq!(there(&world.path("work"), &[PLANTED]), [""; 0]);
    assert_eq!(there(&kept(world, run), &REFUSED), [""; 0]);
    assert_eq!(fs::read_to_string(kept(world, run).join(PLANTED)).unwrap(), "evil");
    let shown = git(world, &["status", "--porcelain", "--untracked-files=all"]);
    assert_eq!(shown.lines(), ["?? etc", "?? infra/main.tf", "?? nested/", "?? src.txt"]);
    // What is not at a closed name is the agent's work.
    assert_eq!(fs::read_to_string(world.path("work/src.txt")).unwrap(), "work\n");
    let moved = events(world, "fs.quarantined");
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert_eq!(
        (&moved[0]["path"], &moved[0]["rule"]),
        (&json!(PLANTED), &json!("**/kvro-jail.toml"))
    );
    assert_eq!(json!(events(world, "alert.raised")), alerts());
    let verified = world.call(&["ledger", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(!world.state().join("runs").join(run).join("launch").exists());
}

#[test]
fn what_an_agent_plants_is_refused_or_in_quarantine_when_the_prompt_returns() {
    let world = repository();
    let report = world.path("report.json");
    let started = planting(&world, &["--report", report.to_str().unwrap()]);
    world.put("work/go", "");
    let ran = started.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    fs::remove_file(world.path("work/go")).unwrap();
    let run = world.runs().remove(0);
    is_clean(&world, &run);
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!((&report["quarantined"], &report["alerts"]), (&json!([PLANTED]), &alerts()));
    let refused = report["refused"].as_array().unwrap();
    let refused: Vec<&str> = refused.iter().map(|one| one["what"].as_str().unwrap()).collect();
    for name in REFUSED {
        assert!(refused.contains(&name), "{name}: {refused:?}");
    }
    let said = |words: &str| assert!(ran.notes.contains(words), "{words}: {ran:?}");
    said(&format!("quarantined: {PLANTED}; "));
    said("alert: link_leaves_workspace: etc -> /etc\n");

    // The next run blames nobody for what stayed.
    let (next, report) = world.report(&["--", "true"]);
    assert_eq!((&report["quarantined"], &report["alerts"]), (&json!([]), &json!([])), "{next:?}");
}

#[test]
fn what_the_host_makes_where_names_are_guarded_is_left_alone() {
    let world = repository();
    let script = "touch planted; until [ -e go ]; do sleep 0.02; done";
    let started = world.started(world.program(&["--", "sh", "-c", script]));
    wait_for("the agent runs", || world.path("work/planted").exists());
    let made = [".vscode/tasks.json", ".env.local", ".mcp.json", ".git/hooks/pre-commit"];
    for name in made {
        world.put(&format!("work/{name}"), "mine");
    }
    world.put("work/src/.env", "mine");
    world.put("work/go", "");
    let ran = started.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(there(&world.path("work"), &made), made);
    assert!(world.path("work/src/.env").exists());
    assert_eq!(events(&world, "fs.quarantined"), Vec::<Value>::new());
}

#[test]
fn a_run_that_was_ended_is_inspected_all_the_same() {
    let world = repository();
    let started = planting(&world, &["-q", "--max-wall", "2s", "--grace", "1ms"]);
    let ran = started.end();
    assert_eq!(ran.code, 124, "{ran:?}");
    is_clean(&world, &world.runs()[0]);
}

/// Starts a run that plants, and kills its supervisor; gives the run.
fn cut_off(world: &World) -> String {
    let started = planting(world, &["-q"]);
    started.signal(Signal::SIGKILL);
    assert_eq!(started.end().code, 137);
    world.runs().remove(0)
}

#[test]
fn after_a_crash_the_next_run_inspects() {
    let world = repository();
    let run = cut_off(&world);
    assert_eq!(there(&world.path("work"), &[PLANTED]), [PLANTED]);
    let next = world.call(&["--", "sh", "-c", "ls deep"]);
    assert_eq!(next.text(), "", "{next:?}");
    is_clean(&world, &run);
    let at = kept(&world, &run).join(PLANTED).display().to_string();
    let said = format!("kvro-jail: quarantined, left by {run}: {PLANTED} is now {at}\n");
    assert!(next.notes.contains(&said), "{next:?}");
    let said = format!("kvro-jail: alert: left by {run}: link_leaves_workspace: etc -> /etc\n");
    assert!(next.notes.contains(&said), "{next:?}");
}

#[test]
fn after_a_crash_a_repair_inspects() {
    let world = repository();
    let run = cut_off(&world);
    let repaired = world.call(&["doctor", "--repair"]);
    assert_eq!(repaired.code, 0, "{repaired:?}");
    assert!(repaired.text().contains(&format!("quarantined, left by {run}: {PLANTED} is now ")));
    is_clean(&world, &run);
    let again = world.call(&["doctor", "--repair"]);
    assert_eq!((again.code, again.text()), (0, "kvro-jail: no run was cut off\n"));
}

#[test]
fn after_a_crash_a_workspace_that_is_gone_is_said() {
    let world = repository();
    let run = cut_off(&world);
    fs::rename(world.path("work"), world.path("elsewhere")).unwrap();
    fs::create_dir(world.path("work")).unwrap();
    world.put("work/.env", "of another project");
    let next = world.call(&["--", "true"]);
    assert_eq!(next.code, 0, "{next:?}");
    let work = world.path("work").display().to_string();
    let said = format!(
        "kvro-jail: alert: left by {run}: not_inspected: {work} is gone, or is another directory now\n"
    );
    assert!(next.notes.contains(&said), "{next:?}");
    assert!(world.path("work/.env").exists());
}

#[test]
fn what_was_there_before_is_as_it_was() {
    let world = repository();
    world.put("work/.git/hooks/pre-commit", "mine");
    world.put("work/.git/rebase-merge/git-rebase-todo", "exec mine\n");
    world.put("work/.vscode/tasks.json", "mine");
    world.put("work/.env", "mine");
    world.put("work/tools/hooks/pre-push", "mine");
    git(&world, &["config", "core.hooksPath", "tools/hooks"]);
    symlink("/etc", world.path("work/etc")).unwrap();
    let files = [
        ".git/hooks/pre-commit",
        ".git/config",
        ".vscode/tasks.json",
        ".env",
        "infra/main.tf",
        "tools/hooks/pre-push",
        "etc",
    ];
    let look = || {
        files.map(|name| {
            let path = world.path("work").join(name);
            let seen = fs::symlink_metadata(&path).unwrap();
            let text = fs::read(&path).unwrap_or_default();
            (text, seen.mode(), seen.ino(), seen.mtime(), seen.mtime_nsec(), seen.ctime_nsec())
        })
    };
    let before = look();
    let script = "for file in .git/hooks/pre-commit .git/config .vscode/tasks.json .env \
                  infra/main.tf tools/hooks/pre-push; do
                      echo evil >$file; rm -f $file; mv $file away; echo evil >$(dirname $file)/new
                  done 2>/dev/null; rm -f new .git/new";
    let (ran, report) = world.report(&["-q", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!((&report["quarantined"], &report["alerts"]), (&json!([]), &json!([])), "{ran:?}");
    assert_eq!(look(), before);
}

#[test]
fn a_repository_that_an_agent_makes_is_its_own() {
    let world = World::new();
    let script = "PATH=/usr/local/bin:$PATH; git init -q -b main . && git config user.name a && git config user.email a@b.example \
                  && echo x >file && git add file && git commit -q -m x && git status --porcelain";
    let (ran, report) = world.report(&["-q", "--", "sh", "-c", script]);
    assert_eq!((ran.code, ran.text()), (0, ""), "{ran:?}");
    assert_eq!((&report["quarantined"], &report["alerts"]), (&json!([]), &json!([])), "{report}");
    assert_eq!(git(&world, &["log", "--format=%s"]).text(), "x\n");
}

#[test]
fn explain_speaks_of_the_git_directory_that_a_path_is_in() {
    let world = repository();
    world.put("work/.git/modules/lib/HEAD", "x");
    world.put("work/.git/modules/lib/objects/x", "x");
    for (path, decision) in [
        (".git/hooks/x", "protected"),
        (".git/modules/lib/hooks/x", "protected"),
        (".git/modules/lib/refs/heads/hooks", "writable"),
    ] {
        let told = world.call(&["explain", "path", path, "--json"]).json();
        assert_eq!(told["decision"], decision, "{path}: {told}");
    }
}

#[test]
fn names_of_any_kind_print_harmlessly() {
    let world = World::new();
    let script = r#"
        d=$(printf 'o\377\n\033[2Jd')
        mkdir "$d" shut
        ln -s /etc "$d/link"
        touch planted
        until [ -e go ]; do sleep 0.02; done
        chmod 000 shut
    "#;
    let report = world.path("report.json");
    let words = ["--report", report.to_str().unwrap(), "--", "sh", "-c", script];
    let mut command = world.program(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = world.started(command);
    wait_for("the agent has planted", || world.path("work/planted").exists());
    let odd = world.path("work").join(OsStr::from_bytes(b"o\xff\n\x1b[2Jd"));
    for dir in [odd, world.path("work/shut")] {
        fs::write(dir.join("kvro-jail.toml"), "evil").unwrap();
    }
    world.put("work/go", "");
    let ran = started.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let names = ["o\u{fffd}\n\u{1b}[2Jd/kvro-jail.toml", "shut/kvro-jail.toml"];
    assert_eq!(report["quarantined"], json!(names));
    assert!(!ran.notes.contains('\u{1b}'), "{ran:?}");
    let said = "quarantined: o\u{fffd}\\u{a}\\u{1b}[2Jd/kvro-jail.toml, shut/kvro-jail.toml; ";
    assert!(ran.notes.contains(said), "{ran:?}");
    let mode = fs::metadata(world.path("work/shut")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0);
    let shown = world.call(&["ledger", "show", &world.runs()[0]]);
    assert!(!shown.text().contains('\u{1b}'), "{shown:?}");
}
