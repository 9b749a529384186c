//! Hidden names that come later, by whose hand ever.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::photograph::photograph;
use crate::prisoner::CANARY;
use crate::talk::Talk;
use crate::world::Side;

/// Steps with their answers inside.
type Steps = &'static [(&'static [&'static str], &'static str)];

/// Plays `steps` on both sides.
pub(super) fn play(ground: &Ground, options: &[&str], steps: Steps) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let mut talk = Talk::inside(&ground.world, options)?;
    for &(words, expected) in steps {
        let said = talk.ask(words)?;
        if said != expected {
            wrong.push(format!("{words:?} inside: {said} instead of {expected}"));
        }
    }
    ensure_ended_well(talk)?;
    let mut talk = ground.talk(Side::Outside)?;
    let mut succeeded = 0;
    for &(words, expected) in steps {
        let said = talk.ask(words)?;
        // What is refused inside succeeds here, so that later steps may find their names taken.
        let is_refused = ["EACCES", "EROFS", "ENOSYS"].contains(&said.as_str());
        succeeded += usize::from(said == "ok" && said != expected);
        if is_refused || (expected == "ok" && !["ok", "EEXIST"].contains(&said.as_str())) {
            wrong.push(format!("{words:?}, the control: {said}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(succeeded > 0, "nothing that is refused inside succeeds outside");
    Ok(())
}

#[rustfmt::skip]
pub(super) fn made_by_the_agent(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    play(&ground, &[], &[
        (&["mkdir", "made"], "ok"),
        (&["create", "made/plain"], "ok"),
        (&["create", "made/.env.local"], "EACCES"),
        (&["open-the-new-way", "made/.env.1", "creat", "rdwr"], "ENOSYS"),
        (&["create-below", "made", ".env.2"], "EACCES"),
        (&["rename", "made/plain", "made/.env.3"], "EACCES"),
        (&["create", "made/more"], "ok"),
        (&["link", "made/more", "made/.env.4"], "EACCES"),
        (&["symlink", "more", "made/.env.5"], "EACCES"),
        (&["mkdir", "made/.env.6"], "EACCES"),
        (&["make-pipe", "made/.env.7"], "EACCES"),
        (&["mkdir", "made/deep"], "ok"),
        (&["create", "made/deep/.env"], "EACCES"),
        (&["create", "made/deep/.env.example"], "ok"),
        (&["create", "made/../made/deep/./.env.8"], "EACCES"),
        (&["create-by-link", "made/link-1", ".env.9"], "EACCES"),
        (&["create-by-link", "made/link-2", "deep/.env.10"], "EACCES"),
        (&["link-nameless", "made", "made/.env.11"], "EACCES"),
        (&["create-below-a-descriptor", "/proc/self/fd", "made", ".env.12"], "EACCES"),
        (&["rename", "made/deep", "packages/deep"], "ok"),
        (&["create", "packages/deep/.env.13"], "EACCES"),
    ])?;
    let found = hidden_below(&ground.place(Side::Inside).join("made"))?;
    ensure!(found.is_empty(), "made on the host: {found:?}");
    Ok(())
}

fn hidden_below(place: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let taken = photograph(place)?;
    let is_hidden = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(".env") && name != ".env.example")
    };
    Ok(taken.into_keys().filter(is_hidden).collect())
}

/// At guarded level, in the root and deeper: never there, not for a moment.
pub(super) fn made_by_the_host(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    for side in [Side::Inside, Side::Outside] {
        let mut talk = ground.talk(side)?;
        let mut answers = std::collections::BTreeSet::new();
        for round in 0..5 {
            for directory in ["", "packages/", "packages/api/"] {
                let (path, mark) =
                    (format!("{directory}.env.{round}"), format!("{directory}mark-{round}"));
                ground.put_text(side, &path, CANARY)?;
                // What is done in this order is seen in this order.
                ground.put_text(side, &mark, "mark")?;
                let mut is_marked = false;
                while !is_marked {
                    is_marked = talk.ask(&["text", &mark])? == "mark";
                    answers.insert(talk.ask(&["read", &path])?);
                }
                answers.insert(talk.ask(&["read", &path])?);
                fs::remove_file(ground.place(side).join(path))?;
            }
        }
        let expected = if side == Side::Inside { "ENOENT" } else { "canary" };
        ensure!(answers.iter().eq([expected]), "{side:?}: {answers:?}");
        ensure_ended_well(talk)?;
    }
    Ok(())
}

pub(super) fn directory(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    for side in [Side::Inside, Side::Outside] {
        let hidden = |answer| if side == Side::Inside { answer } else { "canary" };
        let refused = |answer| if side == Side::Inside { answer } else { "ok" };
        let mut talk = ground.talk(side)?;
        ground.put(side, "late", |path| {
            fs::create_dir_all(path.join("sub/leaf"))?;
            fs::create_dir_all(path.join("free/leaf"))?;
            fs::write(path.join("plain"), "plain")?;
            fs::write(path.join("free/leaf/plain"), "plain")?;
            fs::write(path.join("sub/plain"), "plain")?;
            fs::write(path.join("sub/leaf/plain"), "plain")?;
            fs::write(path.join("sub/.env"), CANARY)?;
            fs::write(path.join(".env.production"), CANARY)
        })?;
        for shown in ["late/plain", "late/sub/plain", "late/sub/leaf/plain", "late/free/leaf/plain"]
        {
            talk.wait_for(&["text", shown], "plain")?;
        }
        for path in ["late/sub/.env", "late/.env.production"] {
            let said = talk.ask(&["read", path])?;
            ensure!(said == hidden("ENOENT"), "{path}: {said}");
        }
        // Its directories are guarded from now on.
        ensure!(talk.ask(&["create", "late/sub/.env.local"])? == refused("EACCES"));
        ensure!(talk.ask(&["rename", "late/sub", "late/moved"])? == refused("EACCES"));
        if side == Side::Inside {
            ensure!(talk.ask(&["create", "late/sub/made"])? == "ok");
            ground.put_text(side, "late/sub/.env", CANARY)?;
            ground.put_text(side, "late/sub/.env.more", CANARY)?;
            ground.put_text(side, "late/sub/mark", "mark")?;
            talk.wait_for(&["text", "late/sub/mark"], "mark")?;
            for path in ["late/sub/.env", "late/sub/.env.more"] {
                let said = talk.ask(&["read", path])?;
                ensure!(said == "ENOENT", "{path}, replaced: {said}");
            }
            ensure!(ground.place(side).join("late/sub/made").exists(), "it is not on the host");
        }
        ensure_ended_well(talk)?;
    }
    Ok(())
}

/// A file that gets a hidden name is gone under its old one, and a hidden file that gets an
/// allowed name is hidden under that.
pub(super) fn renamed(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    for side in [Side::Outside, Side::Inside] {
        let mut talk = ground.talk(side)?;
        let place = ground.place(side);
        fs::rename(place.join("plain.txt"), place.join(".env.moved"))?;
        talk.wait_for(&["text", "plain.txt"], "ENOENT")?;
        let said = talk.ask(&["text", ".env.moved"])?;
        let expected = if side == Side::Inside { "ENOENT" } else { "plain" };
        ensure!(said == expected, "{side:?}: {said}");

        fs::rename(place.join(".env"), place.join("env.old"))?;
        fs::hard_link(place.join("packages/api/.env"), place.join("packages/api/env.old"))?;
        ground.put_text(side, "mark", "mark")?;
        ground.put_text(side, "packages/api/mark", "mark")?;
        for directory in ["", "packages/api/"] {
            talk.wait_for(&["text", &format!("{directory}mark")], "mark")?;
            let said = talk.ask(&["read", &format!("{directory}env.old")])?;
            ensure!((said == "canary") == (side == Side::Outside), "{side:?}: {said}");
        }
        ensure_ended_well(talk)?;
    }
    Ok(())
}
