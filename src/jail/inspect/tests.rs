//! The inspection of a workspace in which a test plays the agent.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use kvro_ledger::event::{AlertRaised, Quarantined};
use kvro_ledger::{Clock, Event, Ledger, Recorder, Redactions, RunId, StateDir};

use super::*;
use crate::policy::{Cover, Entry, FileRules, GlobList};
use crate::workspace::{AccountConfig, Shown, Watched, real_path, scan};

/// A run between its launch and its end.
struct Run {
    root: tempfile::TempDir,
    state: StateDir,
    run: RunId,
    // Held, since nobody recovers what is open.
    _ledger: (Ledger, Recorder),
}

fn cover(words: &[&str]) -> Cover {
    let list: GlobList = words.iter().map(|word| Entry::typed(word.parse().unwrap())).collect();
    Cover::of(vec![list])
}

fn rules() -> FileRules {
    FileRules {
        hide: cover(&["**/.env", "**/.env.*", "!**/.env.example"]),
        protect: cover(&[
            "infra/**",
            ".git/hooks/**",
            ".git/config",
            ".git/commondir",
            ".vscode/**",
            "links/**",
            "./.mcp.json",
            "**/rules.toml",
        ]),
        ..FileRules::default()
    }
}

impl Run {
    /// Prepares the workspace, and launches.
    fn after(prepare: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let work = real_path(root.path()).unwrap().join("work");
        fs::create_dir(&work).unwrap();
        prepare(&work);
        let state = StateDir::open(&root.path().join("state")).unwrap();
        let run: RunId = "20261130-161200-000001".parse().unwrap();
        let ledger =
            Ledger::open(&state, run.clone(), Clock::system(), Redactions::none()).unwrap();
        let survey = scan(&work, &rules(), &AccountConfig::default()).unwrap();
        let dead = Process::dead();
        let file = real_path(root.path()).unwrap().join("state.json");
        let keys = ["servers.*", "projects.*.servers.*"].map(|key| key.parse().unwrap());
        let file = Shown { at: file.clone(), from: file };
        let before = Before {
            workspace: &work,
            files: &rules(),
            survey: &survey,
            guarded: &BTreeSet::new(),
            watched: &[Watched { file, keys: keys.into() }],
            pid_1: dead,
        };
        Launch::keep(&state, &run, before).unwrap();
        Self { root, state, run, _ledger: ledger }
    }

    fn work(&self, name: &str) -> PathBuf {
        real_path(self.root.path()).unwrap().join("work").join(name)
    }

    fn put(&self, name: &str, text: &str) {
        put(&self.work(""), name, text);
    }

    /// What was moved away, by which rule, and what was told.
    fn inspected(&self) -> (BTreeMap<String, String>, Vec<(String, String)>) {
        let (mut moved, mut told) = (BTreeMap::new(), Vec::new());
        for (_, event) in inspect(&self.state, &self.run).events {
            if let Event::Quarantined(Quarantined { path, rule, kept }) = &event {
                let is_lossy = kept.contains('\u{fffd}');
                assert!(is_lossy || fs::symlink_metadata(kept).is_ok(), "{kept} is not there");
                moved.insert(path.clone(), rule.clone());
            }
            if let Event::AlertRaised(AlertRaised { what, detail }) = event {
                told.push((what, detail));
            }
        }
        (moved, told)
    }

    fn moved(&self) -> Vec<String> {
        self.inspected().0.into_keys().collect()
    }

    fn told(&self) -> Vec<(String, String)> {
        self.inspected().1
    }
}

fn put(work: &Path, name: &str, text: &str) {
    let path = work.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn repository(work: &Path, name: &str) {
    for (file, text) in [("HEAD", "ref: refs/heads/main\n"), ("objects/x", ""), ("refs/x", "")] {
        put(work, &format!("{name}/{file}"), text);
    }
}

fn alert(what: &str, detail: impl Into<String>) -> (String, String) {
    (what.to_owned(), detail.into())
}

#[test]
fn what_was_there_stays_whatever_it_is() {
    let run = Run::after(|work| {
        repository(work, ".git");
        put(work, ".git/config", "[core]\nfsmonitor = mine\n");
        put(work, ".git/hooks/pre-commit", "mine");
        put(work, ".git/rebase-merge/git-rebase-todo", "exec mine\n");
        repository(work, "nested/.git");
        put(work, "nested/.git/config", "[core]\npager = mine\n");
        put(work, "infra/main.tf", "x");
        put(work, "a/.env", "x");
        put(work, "program", "x");
        put(work, "lib/.git", "gitdir: ../../elsewhere");
        fs::set_permissions(work.join("program"), Permissions::from_mode(0o4755)).unwrap();
        symlink("/etc", work.join("etc")).unwrap();
        symlink("missing", work.join("b.env.link")).unwrap();
    });
    assert_eq!(run.inspected(), (BTreeMap::new(), vec![]));
    // Nothing was moved, so there is no place for it either.
    assert!(!run.root.path().join("state/quarantine").exists());
}

#[test]
fn what_was_not_there_is_moved_away() {
    let run = Run::after(|work| {
        repository(work, ".git");
        put(work, "sub/.env.example", "x");
    });
    run.put(".git/hooks/pre-commit", "evil");
    run.put(".git/config", "[core]\nfsmonitor = evil\n");
    run.put(".git/commondir", "../evil");
    run.put(".vscode/deep/tasks.json", "{}");
    run.put("infra/main.tf", "x");
    run.put("sub/rules.toml", "x");
    // A hidden name is the host's: an agent gains nothing by making one.
    run.put("sub/.env", "x");
    run.put("sub/.env.example", "y");
    run.put("sub/.mcp.json", "{}");
    symlink("/etc/passwd", run.work(".mcp.json")).unwrap();
    let rule = |path: &str, rule: &str| (path.to_owned(), rule.to_owned());
    let expected = [
        rule(".git/commondir", ".git/commondir"),
        rule(".git/config", ".git/config"),
        rule(".git/hooks", ".git/hooks/**"),
        rule(".mcp.json", "./.mcp.json"),
        rule(".vscode", ".vscode/**"),
        rule("infra", "infra/**"),
        rule("sub/rules.toml", "**/rules.toml"),
    ];
    assert_eq!(run.inspected(), (BTreeMap::from(expected), vec![]));
    let kept = run.root.path().join("state/quarantine/20261130-161200-000001");
    assert_eq!(fs::read_to_string(kept.join(".git/hooks/pre-commit")).unwrap(), "evil");
    assert_eq!(fs::read_link(kept.join(".mcp.json")).unwrap(), Path::new("/etc/passwd"));
    // It is done once.
    assert_eq!(run.inspected(), (BTreeMap::new(), vec![]));
    forget(&run.state, &run.run).unwrap();
    run.put(".vscode/tasks.json", "of the host, after the run");
    assert_eq!(run.moved(), [""; 0]);
}

#[test]
fn what_the_host_saved_meanwhile_stays() {
    let run = Run::after(|work| {
        put(work, "infra/main.tf", "x");
        put(work, ".vscode/settings.json", "x");
        put(work, ".mcp.json", "x");
        put(work, ".env", "x");
        put(work, "gone/.env", "x");
    });
    // As an editor does: a new file takes the name, and the old one is no more.
    for name in [".mcp.json", ".env", "infra/main.tf"] {
        run.put("new", "y");
        fs::rename(run.work("new"), run.work(name)).unwrap();
    }
    run.put(".vscode/extensions.json", "y");
    run.put("infra/.env", "y");
    // As `git checkout` does: the directory goes, and comes again.
    fs::remove_dir_all(run.work("gone")).unwrap();
    run.put("gone/.env", "y");
    let told = vec![alert("protected_changed", ".mcp.json")];
    assert_eq!(run.inspected(), (BTreeMap::new(), told));
}

#[test]
fn a_path_that_was_moved_away_and_made_again_is_planted() {
    let run = Run::after(|work| {
        put(work, "a/b/rules.toml", "mine");
        repository(work, "repo/.git");
        put(work, "repo/.git/hooks/x", "mine");
        put(work, "repo/.git/config", "[user]\nname = me\n");
    });
    fs::rename(run.work("a"), run.work("z")).unwrap();
    run.put("a/b/rules.toml", "evil");
    fs::rename(run.work("repo/.git"), run.work("repo/away")).unwrap();
    repository(&run.work(""), "repo/.git");
    run.put("repo/.git/hooks/x", "evil");
    run.put("repo/.git/config", "[core]\nfsmonitor = evil\n");
    let (moved, told) = run.inspected();
    let moved: Vec<String> = moved.into_keys().collect();
    assert_eq!(moved, ["a/b/rules.toml", "repo/.git/config", "repo/.git/hooks"]);
    let expected = [
        alert("protected_moved", "a is now z"),
        alert("protected_moved", "repo/.git is now repo/away"),
    ];
    assert_eq!(told, expected);
    assert_eq!(fs::read_to_string(run.work("z/b/rules.toml")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(run.work("repo/away/hooks/x")).unwrap(), "mine");
}

#[test]
fn a_protected_link_that_was_replaced_is_planted() {
    let run = Run::after(|work| {
        put(work, "shared/x", "x");
        symlink("shared", work.join("links")).unwrap();
    });
    fs::remove_file(run.work("links")).unwrap();
    symlink("evil", run.work("links")).unwrap();
    assert_eq!(run.moved(), ["links"]);
}

#[test]
fn repositories_of_the_agents_stay_and_what_they_would_run_is_told() {
    let run = Run::after(|work| repository(work, ".git"));
    let work = run.work("");
    repository(&work, "clean/.git");
    run.put("clean/.git/config", "[core]\nbare = false\n[remote \"o\"]\nurl = https://x\n");
    run.put("clean/.git/hooks/pre-commit.sample", "x");
    repository(&work, "evil/.git");
    run.put("evil/.git/config", "[core]\nfsmonitor = evil\n[alias]\nst = !evil\n");
    run.put("evil/.git/hooks/post-checkout", "x");
    repository(&work, "docs/bare");
    run.put("docs/bare/config", "[core]\nbare");
    run.put("docs/bare/commondir", "../common");
    run.put("docs/common/config", "[core]\nsshCommand = evil\n");
    repository(&work, "torn/.git");
    run.put("torn/.git/config", "[core");
    let common = run.work("docs/common").display().to_string();
    let what = "repository_runs_programs";
    let expected = [
        alert(what, format!("docs/bare: commondir = {common}; core.sshcommand = evil")),
        alert(what, "evil/.git: alias.st = !evil; core.fsmonitor = evil; hook post-checkout"),
        alert(what, "torn/.git: config cannot be judged: line 1 is no line of a git configuration"),
    ];
    assert_eq!(run.inspected(), (BTreeMap::new(), expected.to_vec()));
}

#[test]
fn plans_links_pointers_and_set_id_files_are_told() {
    let run = Run::after(|work| {
        repository(work, ".git");
        put(work, ".git/rebase-merge/git-rebase-todo", "exec mine\n");
        put(work, "old", "x");
        put(work, "lib/.git", "gitdir: ../.git/modules/lib");
        symlink("/etc", work.join("etc")).unwrap();
    });
    run.put(".git/rebase-merge/git-rebase-todo", "pick 1\nexec mine\nx evil\n");
    symlink("/etc/passwd", run.work("passwd")).unwrap();
    symlink("lib", run.work("inside")).unwrap();
    symlink("/usr/bin/env", run.work("env")).unwrap();
    run.put("lib/.git", "gitdir: ../evil");
    run.put("new/.git", "gitdir: /var/evil");
    fs::set_permissions(run.work("old"), Permissions::from_mode(0o6755)).unwrap();
    let expected = [
        alert("protected_changed", "lib/.git"),
        alert("set_id_file", "old"),
        alert("rebase_runs_commands", ".git/rebase-merge/git-rebase-todo: x evil"),
        alert("git_pointer_changed", "lib/.git: gitdir: ../evil"),
        alert("git_pointer_changed", "new/.git: gitdir: /var/evil"),
        alert("link_leaves_workspace", "passwd -> /etc/passwd"),
    ];
    assert_eq!(run.told(), expected);
}

#[test]
fn a_closed_directory_hides_nothing_and_stays_closed() {
    let run = Run::after(|work| put(work, "mine/x", "x"));
    // More than one thread looks at a large tree, and begins anew.
    (0..3000).for_each(|number| run.put(&format!("many/{number}"), ""));
    run.put("shut/inner/rules.toml", "evil");
    symlink("/etc", run.work("shut/inner/link")).unwrap();
    run.put("mine/rules.toml", "evil");
    let close = |name: &str| {
        fs::set_permissions(run.work(name), Permissions::from_mode(0o000)).unwrap();
    };
    ["shut/inner", "shut", "mine"].into_iter().for_each(close);
    let told = vec![alert("link_leaves_workspace", "shut/inner/link -> /etc")];
    let (moved, said) = run.inspected();
    assert_eq!(moved.into_keys().collect::<Vec<_>>(), ["mine/rules.toml", "shut/inner/rules.toml"]);
    assert_eq!(said, told);
    let mode =
        |name: &str| fs::symlink_metadata(run.work(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("shut"), mode("mine")), (0, 0));
    let open = |name: &str| {
        fs::set_permissions(run.work(name), Permissions::from_mode(0o700)).unwrap();
    };
    ["shut", "mine"].into_iter().for_each(open);
    assert_eq!(mode("shut/inner"), 0);
    open("shut/inner");
}

#[test]
fn names_of_any_kind_are_moved_and_told() {
    let run = Run::after(|_| {});
    let odd = std::ffi::OsStr::from_bytes(b"o\xff\n\x1b[2Jd");
    let long = "n".repeat(255);
    fs::create_dir(run.work("").join(odd)).unwrap();
    fs::write(run.work("").join(odd).join("rules.toml"), "x").unwrap();
    run.put(&format!("{long}/rules.toml"), "x");
    nix::unistd::mkfifo(&run.work("rules.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir_all(run.work("d/rules.toml")).unwrap();
    assert_eq!(
        run.moved(),
        [
            "d/rules.toml".to_owned(),
            format!("{long}/rules.toml"),
            "o\u{fffd}\n\u{1b}[2Jd/rules.toml".into(),
            "rules.toml".into(),
        ]
    );
    assert!(run.root.path().join("state/quarantine/20261130-161200-000001").join(odd).exists());
}

#[test]
fn a_workspace_that_is_gone_or_another_is_said() {
    for is_made_again in [false, true] {
        let run = Run::after(|_| {});
        fs::rename(run.work(""), run.root.path().join("elsewhere")).unwrap();
        if is_made_again {
            run.put(".env", "of somebody else");
        }
        let path = real_path(run.root.path()).unwrap().join("work");
        let detail = format!("{} is gone, or is another directory now", path.display());
        assert_eq!(run.inspected(), (BTreeMap::new(), vec![alert("not_inspected", detail)]));
    }
}

#[test]
fn a_torn_record_is_said_and_a_missing_one_is_none() {
    let run = Run::after(|_| {});
    let record = run.state.run_dir(&run.run).join("launch");
    let whole = fs::read(&record).unwrap();
    for length in [0, 5, whole.len() / 2] {
        fs::write(&record, &whole[..length]).unwrap();
        let told = alert("not_inspected", "the record of the launch is not one");
        assert_eq!(run.told(), [told], "{length}");
    }
    forget(&run.state, &run.run).unwrap();
    assert_eq!(inspect(&run.state, &run.run), Left::default());
    forget(&run.state, &run.run).unwrap();
}

#[test]
fn programs_that_are_new_in_a_kept_file_are_told() {
    let state = |servers: &str, more: &str| {
        format!(
            "{{\"servers\": {{{servers}}}, \"projects\": {{\"/w\": {{\"servers\": {{{more}}}}}}}}}"
        )
    };
    let file = |work: &Path| work.parent().unwrap().join("state.json");
    let mine = "\"mine\": {\"command\": \"a\"}";
    let run = Run::after(|work| fs::write(file(work), state(mine, "")).unwrap());
    let path = file(run.work("x").parent().unwrap());
    assert_eq!(run.told(), []);
    // What is not about programs may change, and what was there may go.
    fs::write(&path, "{\"theme\": \"dark\"}").unwrap();
    assert_eq!(run.told(), []);
    let other = "\"mine\": {\"command\": \"b\"}";
    fs::write(&path, state(other, "\"new\": \"c\"")).unwrap();
    let (what, path_text) = ("settings_name_programs", path.display());
    let told = |way: &str| alert(what, format!("{path_text}: {way}"));
    let by_project = "projects.\"/w\".servers.new = \"c\"";
    let all = [told(by_project), told("servers.mine = {\"command\":\"b\"}")];
    assert_eq!(run.told(), all);
    fs::write(&path, "{\"servers\": ").unwrap();
    assert_eq!(run.told()[0].0, what);
    fs::remove_file(&path).unwrap();
    symlink("/etc/passwd", &path).unwrap();
    assert!(run.told()[0].1.contains("cannot be judged"), "{:?}", run.told());
}
