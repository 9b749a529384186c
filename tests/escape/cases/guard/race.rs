//! The race: the host replaces what is hidden, and all the while eight threads inside try to get
//! hold of it. Each version carries the canary.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::prisoner::{CANARY, Tally};
use crate::talk::Talk;
use crate::world::Side;

/// So often each hidden file is replaced.
const ROUNDS: u32 = 1_000;

/// So often in the control, where a fraction leaks by the thousand; and as many times again on a
/// machine that is too busy to race.
const CONTROL_ROUNDS: u32 = 60;
const CONTROLS: u32 = 10;

type Tallies = BTreeMap<String, Tally>;

pub(super) fn race(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let mut talk = ground.talk(Side::Inside)?;
    let inside = run(&ground, &mut talk, Side::Inside, ROUNDS)?;
    for (way, tally) in &inside {
        ensure!(tally.leaked == 0, "{way} read what is hidden: {inside:?}");
        // A link goes by a path alone where names are guarded.
        let is_refused = way.starts_with("link ");
        ensure!(is_refused == (tally.read == 0), "{way} is not as expected: {inside:?}");
    }
    // What was done inside is over; what the host did last is what is there.
    for hidden in [".env", "packages/api/.env"] {
        let path = ground.place(Side::Inside).join(hidden);
        ensure!(fs::read_to_string(&path)? == version(ROUNDS), "{hidden} is not the last version");
        ensure!(path.metadata()?.nlink() == 1, "{hidden} has another name");
        talk.wait_for(&["read", hidden], "decoy")?;
    }
    talk.wait_for(&["text", "packages/api/plain.txt"], &version(ROUNDS).replace(CANARY, "public"))?;
    ensure!(talk.ask(&["read", ".env.a"])? == "ENOENT");
    ensure_ended_well(talk)?;

    let mut talk = ground.talk(Side::Outside)?;
    let mut outside = Tallies::new();
    for _ in 0..CONTROLS {
        for (way, more) in run(&ground, &mut talk, Side::Outside, CONTROL_ROUNDS)? {
            let tally = outside.entry(way).or_default();
            tally.read += more.read;
            tally.leaked += more.leaked;
        }
        // Each way wins its race now and then; in so few rounds a slow one may not.
        let leaking = outside.values().filter(|tally| tally.leaked > 0).count();
        if leaking > outside.len() / 2 && outside.values().all(|tally| tally.read > 0) {
            return Ok(());
        }
        ground.lay(Side::Outside)?;
    }
    bail!("the control read next to nothing hidden: {outside:?}")
}

fn run(ground: &Ground, talk: &mut Talk<'_>, side: Side, rounds: u32) -> anyhow::Result<Tallies> {
    ensure!(talk.ask(&["race"])? == "ok");
    for round in 1..=rounds {
        let changed = change(ground, side, round);
        match side {
            Side::Inside => changed.with_context(|| format!("round {round}"))?,
            // There the prisoner moves away what the host is about to change.
            Side::Outside => drop(changed),
        }
    }
    let tallies = talk.ask(&["race-over"])?;
    serde_json::from_str(&tallies).context(tallies)
}

/// What the host does in one round.
fn change(ground: &Ground, side: Side, round: u32) -> anyhow::Result<()> {
    let text = version(round);
    ground.put_text(side, ".env", &text)?;
    ground.put_text(side, "packages/api/.env", &text)?;
    if round.is_multiple_of(4) {
        ground.put_text(side, ".env.a", &text)?;
    }
    if round % 4 == 2 {
        fs::remove_file(ground.place(side).join(".env.a")).ok();
    }
    if round.is_multiple_of(20) {
        ground.exchange(side, "packages/api", |path| directory(path, &text))?;
    }
    Ok(())
}

fn directory(path: &Path, text: &str) -> std::io::Result<()> {
    fs::create_dir(path)?;
    fs::write(path.join(".env"), text)?;
    fs::write(path.join("plain.txt"), text.replace(CANARY, "public"))?;
    fs::write(path.join("plain"), "plain")
}

fn version(round: u32) -> String {
    format!("{CANARY} version {round}")
}
