//! The policies and profiles that come with the program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::*;
use crate::surroundings::Surroundings;

fn nowhere() -> Surroundings {
    Surroundings {
        home: "/home/u".into(),
        config_home: "/nowhere/config".into(),
        state_home: "/nowhere/state".into(),
        cwd: "/w".into(),
        etc: "/nowhere/etc".into(),
        env: BTreeMap::new(),
    }
}

fn builtin(name: &str) -> Policy {
    let choice = PolicyChoice::Builtin(name.to_owned());
    check(&nowhere(), Path::new("/w"), &choice).unwrap()
}

fn reasons<T>(entries: &[Entry<T>]) -> Vec<bool> {
    entries.iter().map(|e| e.why.as_ref().is_some_and(|why| !why.trim().is_empty())).collect()
}

#[test]
fn every_entry_of_a_built_in_policy_says_why() {
    for name in policy_names() {
        let text = builtin_policy(name).unwrap();
        let whys = text.matches("why = \"").count();
        let values = text.matches("value = ").count();
        assert_eq!(whys, values, "{name}");
        let policy = builtin(name);
        let all = [
            reasons(&policy.files.write),
            reasons(&policy.files.read),
            policy.files.hide.lists().iter().flat_map(|list| reasons(list)).collect(),
            policy.files.protect.lists().iter().flat_map(|list| reasons(list)).collect(),
            reasons(&policy.net.allow),
            reasons(&policy.net.deny),
            policy.env.pass.iter().flat_map(|list| reasons(list)).collect(),
            reasons(&policy.env.set),
        ];
        assert!(all.iter().flatten().all(|given| *given), "{name}");
        // A single value without a reason would be a bare `key = value`.
        let bare = text.lines().filter(|line| {
            line.split_once(" = ").is_some_and(|(key, value)| {
                !key.contains(['{', '"', '#']) && !value.starts_with(['{', '['])
            })
        });
        assert_eq!(bare.collect::<Vec<_>>(), vec!["version = 1"], "{name}");
    }
}

#[test]
fn every_entry_of_a_built_in_profile_says_why() {
    for name in profile_names() {
        let profile = builtin_profile(name).unwrap();
        assert_eq!(profile.name, name);
        let all = [
            reasons(&profile.servers),
            reasons(&profile.keep),
            profile.keep.iter().flat_map(|entry| reasons(&entry.value.protect)).collect(),
            profile.keep.iter().flat_map(|entry| reasons(&entry.value.watch)).collect(),
            reasons(&profile.read),
            reasons(&profile.read_if_clean),
            reasons(&profile.caches),
            reasons(&profile.never),
            reasons(&profile.pass),
            reasons(&profile.set),
            profile.moved.iter().map(|moved| moved.why.is_some()).collect(),
        ];
        assert!(all.iter().flatten().all(|given| *given), "{name}");
    }
}

#[test]
fn no_profile_shows_what_is_never_shown() {
    let profiles: Vec<Profile> =
        profile_names().into_iter().map(|name| builtin_profile(name).unwrap()).collect();
    let below = |path: &HomePath| match path {
        HomePath::BelowHome(path) => Some(path.clone()),
        HomePath::BelowVariable { .. } => None,
    };
    let never: Vec<PathBuf> =
        profiles.iter().flat_map(|p| p.never.iter().filter_map(|e| below(&e.value))).collect();
    assert!(never.contains(&PathBuf::from(".ssh")));
    for profile in &profiles {
        let listed = profile.read.iter().chain(&profile.caches).map(|entry| &entry.value);
        let listed = listed.chain(profile.keep.iter().map(|entry| &entry.value.path));
        let clean = profile.read_if_clean.iter().map(|entry| &entry.value.path);
        for shown in listed.chain(clean).filter_map(below) {
            let hit = never.iter().find(|n| n.starts_with(&shown) || shown.starts_with(n));
            assert_eq!(hit, None, "{} shows {}", profile.name, shown.display());
        }
    }
}

/// What is kept is not searched through before a run: what is closed in it is known by the
/// directories above it.
#[test]
fn what_is_protected_in_a_kept_directory_is_spelled_out() {
    let mut all = 0;
    for name in profile_names() {
        for entry in builtin_profile(name).unwrap().keep {
            let patterns = entry.value.protect.iter().map(|entry| &entry.value);
            let leads = Leads::of(patterns.clone());
            assert!(!leads.reach_below(Path::new("any")), "{name}");
            for pattern in patterns.map(ToString::to_string) {
                assert!(pattern.contains('/') && !pattern.starts_with("**"), "{name}: {pattern}");
                all += 1;
            }
        }
    }
    assert!(all > 5, "only {all}");
}

#[test]
fn the_default_policy_allows_the_providers_and_nothing_else() {
    let policy = builtin("default");
    let allowed: Vec<String> = policy.net.allow.iter().map(|e| e.value.to_string()).collect();
    assert_eq!(allowed, ["api.anthropic.com", "api.openai.com"]);
    assert_eq!(policy.net.mode, NetMode::Proxy);
    assert_eq!(policy.limits.max_usd, None);
    assert_eq!(policy.require, Level::Full);
    let answer = |path: &str| match policy.explain_path(Path::new("/w"), Path::new(path)) {
        PathAnswer::Hidden(_) => "hidden",
        PathAnswer::Protected(_) => "protected",
        PathAnswer::Writable(_) => "writable",
        PathAnswer::Readable(_) | PathAnswer::InWorkspace => "readable",
        PathAnswer::NotNamed => "not named",
    };
    for (path, expected) in [
        ("/w/.env", "hidden"),
        ("/w/a/.env.production", "hidden"),
        ("/w/.env.example", "writable"),
        ("/w/infra/production/main.tf", "protected"),
        ("/w/infra/.env", "hidden"),
        ("/w/.git/hooks/pre-commit", "protected"),
        ("/w/.git/index", "writable"),
        ("/w/kvro-jail.toml", "protected"),
        ("/w/.git/commondir", "protected"),
        ("/w/.husky/pre-commit", "protected"),
        ("/w/.vscode/tasks.json", "protected"),
        ("/w/.envrc", "hidden"),
        ("/w/.mcp.json", "protected"),
        ("/w/.claude/settings.local.json", "protected"),
        ("/w/.claude/commands/x.md", "writable"),
        ("/w/.codex/config.toml", "protected"),
        // What packages bring is theirs.
        ("/w/node_modules/x/.vscode/settings.json", "writable"),
        ("/w/node_modules/x/.gitlab-ci.yml", "writable"),
        ("/w/src/main.rs", "writable"),
        ("/home/u/.ssh/id_rsa", "not named"),
    ] {
        assert_eq!(answer(path), expected, "{path}");
    }
}

#[test]
fn the_test_policy_has_no_door() {
    let policy = builtin("test");
    assert_eq!(policy.net.mode, NetMode::Closed);
    assert_eq!(policy.net.rules(), kvro_proxy::Rules::closed());
}

#[test]
fn a_profile_is_guessed_from_the_name_of_the_command() {
    let guess = |command: &str| Profiles::choose(None, Some(command.as_ref())).unwrap().agent.name;
    assert_eq!(guess("/usr/local/bin/claude"), "claude");
    assert_eq!(guess("codex"), "codex");
    assert_eq!(guess("gemini"), "gemini");
    assert_eq!(guess("npm"), "node");
    assert_eq!(guess("cargo"), "rust");
    assert_eq!(guess("pytest"), "python");
    assert_eq!(guess("claude2"), "generic");
    let profiles = Profiles::choose(Some("node"), Some("claude".as_ref())).unwrap();
    let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(names, ["base", "rust", "node", "python"]);
}

#[test]
fn an_unknown_profile_or_policy_is_answered_with_a_known_one() {
    let profile = Profiles::choose(Some("cluade"), None).map(|_| ()).unwrap_err();
    assert_eq!(profile.to_string(), "there is no profile `cluade`\n\nhint: did you mean `claude`?");
    let choice = PolicyChoice::Builtin("strikt".to_owned());
    let policy = check(&nowhere(), Path::new("/w"), &choice).unwrap_err();
    assert_eq!(
        policy.to_string(),
        "there is no built-in policy `strikt`\n\nhint: did you mean `builtin:strict`?"
    );
}

#[test]
fn what_is_printed_of_a_policy_reads_back_as_it() {
    for name in policy_names() {
        let policy = builtin(name);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        let body = policy.to_toml().replacen("version = 1", "version = 1\nextends = []", 1);
        std::fs::write(&file, &body).unwrap();
        let again = check(&nowhere(), Path::new("/w"), &PolicyChoice::File(file)).unwrap();
        let bare = |policy: &Policy| {
            let text = policy.to_toml();
            let lines = text.lines().map(|line| line.split(" # ").next().unwrap_or_default());
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(bare(&again), bare(&policy), "{name}");
    }
}
