//! Many closed names at once: from the beginning, and in a tree that the host moves in.

use std::fs;
use std::path::Path;

use anyhow::ensure;

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::prisoner::CANARY;
use crate::talk::Talk;
use crate::world::{Side, give_all};

const DIRECTORIES: usize = 1_000;
/// In each of them.
const HIDDEN: [&str; 5] = [".env", ".env.local", ".env.test", "a.tfstate", "id_rsa"];

fn grow(tree: &Path) -> std::io::Result<()> {
    for number in 0..DIRECTORIES {
        let dir = tree.join(directory(number));
        fs::create_dir_all(&dir)?;
        for name in HIDDEN {
            fs::write(dir.join(name), CANARY)?;
        }
        fs::write(dir.join("plain.txt"), "plain")?;
    }
    Ok(())
}

fn directory(number: usize) -> String {
    format!("part-{}/{}-{number}", number / 100, "directory".repeat(4))
}

/// Reads all that is hidden, and what is not; the answers that are neither's.
fn look(talk: &mut Talk<'_>, tree: &str, hidden: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for number in 0..DIRECTORIES {
        let dir = format!("{tree}/{}", directory(number));
        for name in HIDDEN {
            let said = talk.ask(&["read", &format!("{dir}/{name}")])?;
            if !hidden.contains(&said.as_str()) {
                wrong.push(format!("{dir}/{name}: {said}"));
            }
        }
        let said = talk.ask(&["text", &format!("{dir}/plain.txt")])?;
        if said != "plain" {
            wrong.push(format!("{dir}/plain.txt: {said}"));
        }
    }
    Ok(wrong)
}

pub(super) fn from_the_beginning(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    for side in [Side::Inside, Side::Outside] {
        let tree = ground.place(side).join("many");
        grow(&tree)?;
        give_all(identity, &tree)?;
    }
    let mut talk = ground.talk(Side::Inside)?;
    let wrong = look(&mut talk, "many", &["decoy"])?;
    ensure!(wrong.is_empty(), "{} answers, as {}", wrong.len(), wrong[0]);
    let last = format!("many/{}", directory(DIRECTORIES - 1));
    for (words, expected) in [
        (["create", &format!("{last}/new.txt")], "ok"),
        (["create", &format!("{last}/.env.new")], "EACCES"),
        (["unlink", &format!("{last}/id_rsa")], "EACCES"),
    ] {
        let said = talk.ask(&words)?;
        ensure!(said == expected, "{words:?}: {said}");
    }
    ensure_ended_well(talk)?;
    let mut talk = ground.talk(Side::Outside)?;
    let wrong = look(&mut talk, "many", &["canary"])?;
    ensure!(wrong.is_empty(), "the control: {} answers, as {}", wrong.len(), wrong[0]);
    Ok(())
}

pub(super) fn moved_in(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    for side in [Side::Inside, Side::Outside] {
        let mut talk = ground.talk(side)?;
        ground.put(side, "moved", grow)?;
        let last = format!("moved/{}/plain.txt", directory(DIRECTORIES - 1));
        talk.wait_for(&["text", &last], "plain")?;
        let hidden = if side == Side::Inside { &["ENOENT", "decoy"][..] } else { &["canary"] };
        let wrong = look(&mut talk, "moved", hidden)?;
        ensure!(wrong.is_empty(), "{side:?}: {} answers, as {}", wrong.len(), wrong[0]);
        ensure_ended_well(talk)?;
    }
    Ok(())
}
