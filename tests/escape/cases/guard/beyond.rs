//! Hidden names in directories that are not guarded, and hidden names that are no plain file's.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context as _, ensure};
use nix::sys::stat::Mode;

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::photograph::photograph;
use crate::prisoner::CANARY;
use crate::record;
use crate::world::{Side, give_all};

/// In a directory that is not guarded: closed soon, and on record from the beginning.
pub(super) fn far(identity: Identity) -> anyhow::Result<()> {
    const LATE: [&str; 3] = ["open/.env.late", "open/tree/.env", "open/new/deep/.env"];
    let ground = Ground::set(identity)?;
    let mut talk = ground.talk(Side::Inside)?;
    let new = ground.place(Side::Inside).join("open/new");
    fs::create_dir_all(new.join("deep"))?;
    give_all(identity, &new)?;
    for path in LATE {
        // Once more by an editor's save, which takes the first cover away.
        for _ in 0..2 {
            ground.put_text(Side::Inside, path, CANARY)?;
            talk.wait_for(&["read", path], "decoy")?;
        }
        for attack in [&["append", path][..], &["unlink", path], &["rename", path, "open/away"]] {
            let said = talk.ask(attack)?;
            ensure!(said == "EACCES" || said == "EROFS", "{attack:?}: {said}");
        }
        let host = fs::read_to_string(ground.place(Side::Inside).join(path))?;
        ensure!(host == CANARY, "{path} is {host:?} on the host");
    }
    ensure_ended_well(talk)?;
    let runs = record::runs(&ground.world.state())?;
    let entries = record::entries(runs.last().context("no run is on record")?)?;
    let exposed = record::data_of(&entries, "fs.exposed");
    for path in LATE {
        ensure!(exposed.iter().any(|data| data["path"] == path), "{path}: {exposed:?}");
    }
    // The control: nothing closes it outside.
    let mut talk = ground.talk(Side::Outside)?;
    ground.put_text(Side::Outside, "open/.env.late", CANARY)?;
    ensure!(talk.ask(&["read", "open/.env.late"])? == "canary");
    Ok(())
}

/// From the beginning and later: pipes, sockets, directories and links.
pub(super) fn kinds(identity: Identity) -> anyhow::Result<()> {
    const NAMES: [&str; 5] = ["pipe", "socket", "directory/secret", "link", "dangling"];
    let ground = Ground::set(identity)?;
    let make = |path: &Path, name: &str| -> std::io::Result<()> {
        match name {
            "pipe" => Ok(nix::unistd::mkfifo(path, Mode::S_IRWXU)?),
            "socket" => UnixListener::bind(path).map(drop),
            "link" => std::os::unix::fs::symlink("infra/main.tf", path),
            "dangling" => std::os::unix::fs::symlink("nowhere", path),
            _ => {
                fs::create_dir(path)?;
                fs::write(path.join("secret"), CANARY)
            }
        }
    };
    let put = |when: &str| {
        for name in NAMES {
            let top = name.split('/').next().unwrap_or(name);
            for directory in ["", "packages/api/"] {
                let to = format!("{directory}.env.{when}-{top}");
                ground.put(Side::Inside, &to, |path| make(path, top))?;
            }
        }
        ground.put_text(Side::Inside, &format!("mark-{when}"), "mark")?;
        ground.put_text(Side::Inside, &format!("packages/api/mark-{when}"), "mark")
    };
    put("early")?;
    let before = photograph(&ground.place(Side::Inside))?;
    let mut talk = ground.talk(Side::Inside)?;
    for when in ["early", "late"] {
        if when == "late" {
            put(when)?;
        }
        for directory in ["", "packages/api/"] {
            talk.wait_for(&["text", &format!("{directory}mark-{when}")], "mark")?;
            for name in NAMES {
                let path = format!("{directory}.env.{when}-{name}");
                let said = talk.ask(&["open", &path, "rdonly", "nonblock"])?;
                let read = talk.ask(&["read-without-waiting", &path])?;
                ensure!(read != "canary", "{path}: {said}");
                let said = talk.ask(&["rename", &path, "away"])?;
                ensure!(["EACCES", "ENOENT", "ENOTDIR"].contains(&said.as_str()), "{path}: {said}");
            }
        }
    }
    ensure_ended_well(talk)?;
    let after = photograph(&ground.place(Side::Inside))?;
    let changed = before.iter().filter(|(path, thing)| {
        let is_dir = path.as_os_str().is_empty() || path.ends_with("api");
        !is_dir && after.get(*path) != Some(thing)
    });
    let changed: Vec<_> = changed.map(|(path, _)| path).collect();
    ensure!(changed.is_empty(), "changed on the host: {changed:?}");
    Ok(())
}
