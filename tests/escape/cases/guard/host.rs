//! What the host does at guarded names is soon seen inside, and what is closed stays closed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, ensure};
use nix::sys::stat::Mode;

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::talk::Talk;
use crate::world::Side;

/// A change of the host's and what must be seen of it.
struct Change {
    name: &'static str,
    make: fn(&Ground, Side) -> anyhow::Result<()>,
    seen: &'static [(&'static [&'static str], &'static str)],
}

const fn change(
    name: &'static str,
    make: fn(&Ground, Side) -> anyhow::Result<()>,
    seen: &'static [(&'static [&'static str], &'static str)],
) -> Change {
    Change { name, make, seen }
}

/// One after the other: a later one builds on what the earlier left.
#[rustfmt::skip]
const CHANGES: &[Change] = &[
    change("a file is written in place",
        |g, side| Ok(fs::write(g.place(side).join("plain.txt"), "in place")?),
        &[(&["text", "plain.txt"], "in place")]),
    change("a file is replaced",
        |g, side| g.put_text(side, "plain.txt", "replaced"),
        &[(&["text", "plain.txt"], "replaced"), (&["stat", "plain.txt"], "file 644 1")]),
    change("a file is replaced deeper down",
        |g, side| g.put_text(side, "packages/api/plain.txt", "replaced"),
        &[(&["text", "packages/api/plain.txt"], "replaced")]),
    change("a file is new",
        |g, side| g.put_text(side, "new.txt", "new"),
        &[(&["text", "new.txt"], "new")]),
    change("a file is made",
        |g, side| { fs::write(g.place(side).join("made.txt"), "made")?; g.world.identity.give(&g.place(side).join("made.txt")) },
        &[(&["text", "made.txt"], "made"), (&["append", "made.txt"], "ok"), (&["text", "made.txt"], "madex")]),
    change("a file gets another mode",
        |g, side| Ok(fs::set_permissions(g.place(side).join("made.txt"), Permissions::from_mode(0o751))?),
        &[(&["stat", "made.txt"], "file 751 1")]),
    change("a file is saved twice at once",
        |g, side| { g.put_text(side, "new.txt", "once")?; g.put_text(side, "new.txt", "twice") },
        &[(&["text", "new.txt"], "twice")]),
    change("a directory is new",
        |g, side| g.put(side, "box", |path| { fs::create_dir(path)?; fs::write(path.join("in"), "in") }),
        &[(&["text", "box/in"], "in"), (&["create", "box/of-the-agent"], "ok")]),
    change("a file is made in the new directory",
        |g, side| Ok(fs::write(g.place(side).join("box/later"), "later")?),
        &[(&["text", "box/later"], "later"), (&["list", "box"], "in later of-the-agent")]),
    change("a directory is replaced",
        |g, side| g.exchange(side, "box", |path| { fs::create_dir(path)?; fs::write(path.join("in"), "other") }),
        &[(&["text", "box/in"], "other"), (&["list", "box"], "in")]),
    change("a directory is replaced by a file",
        |g, side| { fs::remove_dir_all(g.place(side).join("box"))?; g.put_text(side, "box", "no more") },
        &[(&["text", "box"], "no more")]),
    change("a file is replaced by a link",
        |g, side| g.put(side, "box", |path| symlink("plain.txt", path)),
        &[(&["link-text", "box"], "plain.txt"), (&["text", "box"], "replaced")]),
    change("a link leads elsewhere",
        |g, side| g.put(side, "box", |path| symlink("new.txt", path)),
        &[(&["link-text", "box"], "new.txt"), (&["text", "box"], "twice")]),
    change("a link is replaced by a directory",
        |g, side| { fs::remove_file(g.place(side).join("box"))?; g.put(side, "box", |path| fs::create_dir(path)) },
        &[(&["list", "box"], ""), (&["create", "box/again"], "ok")]),
    change("a pipe is made",
        |g, side| { let pipe = g.place(side).join("pipe"); nix::unistd::mkfifo(&pipe, Mode::from_bits_truncate(0o640))?; g.world.identity.give(&pipe) },
        &[(&["stat", "pipe"], "pipe 640 1")]),
    change("names are moved",
        |g, side| { fs::rename(g.place(side).join("pipe"), g.place(side).join("tube"))?; Ok(fs::rename(g.place(side).join("box"), g.place(side).join("crate"))?) },
        &[(&["stat", "tube"], "pipe 640 1"), (&["list", "crate"], "again"), (&["stat", "pipe"], "ENOENT"), (&["stat", "box"], "ENOENT")]),
    change("a name is moved over another",
        |g, side| Ok(fs::rename(g.place(side).join("made.txt"), g.place(side).join("new.txt"))?),
        &[(&["text", "new.txt"], "madex"), (&["stat", "made.txt"], "ENOENT")]),
    change("names are removed",
        |g, side| { fs::remove_file(g.place(side).join("tube"))?; Ok(fs::remove_dir_all(g.place(side).join("crate"))?) },
        &[(&["stat", "tube"], "ENOENT"), (&["stat", "crate"], "ENOENT")]),
    change("a file gets a second name",
        |g, side| Ok(fs::hard_link(g.place(side).join("new.txt"), g.place(side).join("second"))?),
        &[(&["stat", "second"], "file 751 2"), (&["stat", "new.txt"], "file 751 2")]),
    change("names have odd characters",
        |g, side| g.put_text(side, "a 'name'\n\"with\" *", "odd"),
        &[(&["text", "a 'name'\n\"with\" *"], "odd")]),
    change("a guarded directory is replaced",
        |g, side| g.exchange(side, "packages/api", |path| {
            fs::create_dir(path)?;
            fs::write(path.join(".env"), crate::prisoner::CANARY)?;
            fs::create_dir(path.join("src"))?;
            fs::write(path.join("src/main.rs"), "main")?;
            fs::write(path.join("other"), "other")
        }),
        &[(&["text", "packages/api/other"], "other"), (&["text", "packages/api/src/main.rs"], "main"), (&["stat", "packages/api/plain.txt"], "ENOENT"),
          (&["create", "packages/api/made"], "ok"), (&["create", "packages/api/src/made"], "ok")]),
    change("a file is new in the replaced directory",
        |g, side| g.put_text(side, "packages/api/late", "late"),
        &[(&["text", "packages/api/late"], "late")]),
    change("a guarded directory is moved away",
        |g, side| Ok(fs::rename(g.place(side).join("packages"), g.world.path("ready/packages"))?),
        &[(&["stat", "packages/api/late"], "ENOENT"), (&["stat", "packages/web"], "ENOENT")]),
    change("and back again",
        |g, side| Ok(fs::rename(g.world.path("ready/packages"), g.place(side).join("packages"))?),
        &[(&["text", "packages/api/late"], "late"), (&["text", "packages/web/index.js"], "1"), (&["create", "packages/api/back"], "ok"), (&["create", "packages/back"], "ok")]),
    change("a guarded directory is replaced by a link",
        |g, side| { fs::rename(g.place(side).join("packages/api"), g.place(side).join("packages/real"))?; Ok(symlink("real", g.place(side).join("packages/api"))?) },
        &[(&["text", "packages/real/late"], "late")]),
];

/// What is hidden, and must stay so through all of it.
const HIDDEN: [&str; 4] = [".env", "packages/api/.env", "packages/real/.env", "box/.env"];

pub(super) fn seen(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    // The control comes first: the steps themselves are right.
    for side in [Side::Outside, Side::Inside] {
        let mut talk = ground.talk(side)?;
        let mut read_hidden = 0;
        for Change { name, make, seen } in CHANGES {
            make(&ground, side).with_context(|| format!("{name}: {side:?}"))?;
            for (words, answer) in *seen {
                talk.wait_for(words, answer).with_context(|| format!("{name}: {side:?}"))?;
            }
            read_hidden += how_many_open(&mut talk)?;
            ensure!(side == Side::Outside || read_hidden == 0, "{name}: a hidden file is open");
        }
        ensure!(side == Side::Inside || read_hidden > 0, "the control read nothing");
        ensure_ended_well(talk)?;
    }
    Ok(())
}

fn how_many_open(talk: &mut Talk<'_>) -> anyhow::Result<usize> {
    let mut open = 0;
    for path in HIDDEN {
        open += usize::from(talk.ask(&["read", path])? == "canary");
    }
    Ok(open)
}

/// Many names at once, more than are asked about at a time.
pub(super) fn crowd(identity: Identity) -> anyhow::Result<()> {
    const CROWD: usize = 400;
    let ground = Ground::set(identity)?;
    let place = ground.place(Side::Inside);
    let mut talk = ground.talk(Side::Inside)?;
    let name = |number| format!("packages/api/crowd-{number:03}");
    let make = |path: &Path, number: usize| {
        if number.is_multiple_of(8) {
            fs::create_dir(path)
        } else {
            fs::write(path, number.to_string())
        }
    };
    for number in 0..CROWD {
        make(&place.join(name(number)), number)?;
        // What is done inside meanwhile goes on.
        if number.is_multiple_of(50) {
            ensure!(talk.ask(&["create", &format!("packages/api/mine-{number}")])? == "ok");
        }
    }
    talk.wait_for(&["text", &name(CROWD - 1)], &(CROWD - 1).to_string())?;
    for number in 0..CROWD {
        let answer = if number.is_multiple_of(8) { "directory 755" } else { "file 644 1" };
        talk.wait_for(&["stat", &name(number)], answer)?;
    }
    for number in 0..CROWD {
        let path = place.join(name(number));
        if number.is_multiple_of(8) { fs::remove_dir(path) } else { fs::remove_file(path) }?;
    }
    for number in 0..CROWD {
        talk.wait_for(&["stat", &name(number)], "ENOENT")?;
    }
    ensure_ended_well(talk)
}
