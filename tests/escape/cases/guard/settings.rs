//! The state that an agent keeps in the home: it is the agent's own, but for what another would run.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::prisoner::CANARY;
use crate::record;
use crate::talk::Talk;
use crate::world::{Side, give_all};

/// What is done to the kept state of `-P claude`, and the answer inside; outside all succeeds.
#[rustfmt::skip]
const STEPS: &[(&[&str], &str)] = &[
    (&["read", "%/settings.json"], "canary"),
    (&["open-to-write", "%/settings.json"], "EROFS"),
    (&["truncate", "%/settings.json"], "EROFS"),
    (&["chmod", "%/settings.json"], "EROFS"),
    (&["save", "%/settings.json", "{}"], "EACCES"),
    (&["create", "%/settings.local.json"], "EACCES"),
    (&["create", "/proc/self/root%/settings.mine.json"], "EACCES"),
    (&["create-by-link", "{here}/way", "%/settings.way.json"], "EACCES"),
    (&["create", "%/plugins/one/new.js"], "EACCES"),
    (&["append", "%/plugins/one/main.js"], "EROFS"),
    (&["mkdir", "%/hooks"], "EACCES"),
    (&["rename", "%/projects", "%/skills"], "EACCES"),
    (&["symlink", "projects", "%/agents"], "EACCES"),
    (&["rename", "%/plugins", "%/projects/plugins"], "EACCES"),
    // What every session does.
    (&["create", "%/history.jsonl"], "ok"),
    (&["append", "%/history.jsonl"], "ok"),
    (&["save", "%/.credentials.json", "{}"], "ok"),
    (&["save", "%/.credentials.json", "{\"a\":1}"], "ok"),
    (&["mkdir", "%/projects/new"], "ok"),
    (&["create", "%/projects/new/session.jsonl"], "ok"),
    (&["rename", "%/projects/new", "%/projects/renamed"], "ok"),
    (&["mkdir", "%/todos"], "ok"),
    (&["serve", "%/socket"], "ok"),
    (&["unlink", "%/socket"], "ok"),
    (&["create", "%/projects/settings.json"], "ok"),
    // A file that it writes all the time: what it names there is told.
    (&["write", "%.json", "{\"mcpServers\": {\"theirs\": {\"command\": \"sh\"}}}"], "ok"),
];

pub(super) fn settings(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let kept = ground.world.path("home/.claude");
    let lay = || -> anyhow::Result<()> {
        fs::remove_dir_all(&kept).ok();
        for (path, text) in [
            ("settings.json", CANARY),
            ("plugins/one/main.js", "1"),
            ("projects/old/session.jsonl", "{}"),
        ] {
            let path = kept.join(path);
            fs::create_dir_all(path.parent().context("no parent")?)?;
            fs::write(path, text)?;
        }
        let state = ground.world.path("home/.claude.json");
        fs::write(&state, "{\"mcpServers\": {}}")?;
        identity.give(&state)?;
        give_all(identity, &kept)
    };
    lay()?;
    let words = |step: &[&str]| -> Vec<String> {
        step.iter().map(|word| word.replace('%', &kept.display().to_string())).collect()
    };
    let ask = |talk: &mut Talk<'_>, step: &[&str]| {
        let words = words(step);
        talk.ask(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut wrong = Vec::new();
    let mut talk = Talk::inside(&ground.world, &["-P", "claude"])?;
    for (step, expected) in STEPS {
        let said = ask(&mut talk, step)?;
        if said != *expected {
            wrong.push(format!("{step:?}: {said} instead of {expected}"));
        }
    }
    // The host's own save is seen, and stays out of reach.
    let path = kept.join("settings.json");
    ensure!(fs::read_to_string(&path)? == CANARY, "the settings were changed");
    fs::write(kept.join("settings.new"), "theirs")?;
    fs::rename(kept.join("settings.new"), &path)?;
    let shown = path.display().to_string();
    talk.wait_for(&["text", &shown], "theirs")?;
    ensure!(talk.ask(&["append", &shown])? == "EROFS", "the host's new settings are open");
    ensure_ended_well(talk)?;
    for absent in ["settings.local.json", "settings.mine.json", "settings.way.json", "hooks"] {
        ensure!(!kept.join(absent).exists(), "{absent} is on the host");
    }
    for made in ["history.jsonl", ".credentials.json", "projects/renamed/session.jsonl"] {
        ensure!(kept.join(made).is_file(), "{made} is not on the host");
    }
    let runs = record::runs(&ground.world.state())?;
    let entries = record::entries(runs.last().context("no run is on record")?)?;
    let refused = record::data_of(&entries, "fs.refused");
    let is_told = |verb: &str, path: PathBuf| {
        refused.iter().any(|data| data["verb"] == verb && data["path"] == *path.to_string_lossy())
    };
    for (verb, name) in
        [("open", "settings.json"), ("create", "settings.local.json"), ("create", "hooks")]
    {
        ensure!(is_told(verb, kept.join(name)), "{verb} {name}: {refused:#?}");
    }

    let alerts = record::data_of(&entries, "alert.raised");
    let is_named = |data: &serde_json::Value| {
        let is_theirs = |detail: &str| detail.contains("mcpServers.theirs = {\"command\":\"sh\"}");
        data["what"] == "settings_name_programs" && data["detail"].as_str().is_some_and(is_theirs)
    };
    ensure!(alerts.iter().filter(|data| is_named(data)).count() == 1, "{alerts:#?}");

    let mut talk = ground.talk(Side::Outside)?;
    for (step, _) in STEPS.iter().filter(|(_, inside)| inside.starts_with('E')) {
        lay()?;
        let said = ask(&mut talk, step)?;
        if said != "ok" {
            wrong.push(format!("{step:?}, the control: {said}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
