//! A storm of refused names is as many events as there are distinct ones, with their counts.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::prisoner::{STORM, STORMED};
use crate::record;
use crate::world::Side;

pub(super) fn storm(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let mut talk = ground.talk(Side::Inside)?;
    let said = talk.ask(&["storm-of-names"])?;
    let all = u32::try_from(STORM.len())? * STORMED;
    ensure!(said == all.to_string(), "{said} of {all} were refused");
    ensure_ended_well(talk)?;

    let runs = record::runs(&ground.world.state())?;
    let entries = record::entries(runs.last().context("no run is on record")?)?;
    let mut counts: BTreeMap<u64, ((String, String), u64)> = BTreeMap::new();
    for entry in &entries {
        let data = &entry["data"];
        let number = |value: &Value| value.as_u64().context("no number");
        let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
        match entry["event"].as_str() {
            Some("fs.refused") => {
                let subject = (text(&data["path"])?, text(&data["verb"])?);
                counts.insert(number(&entry["seq"])?, (subject, 1));
            }
            Some("ledger.repeated") => {
                let of = counts.get_mut(&number(&data["of_seq"])?).context("of no refusal")?;
                of.1 += number(&data["count"])?;
            }
            _ => {}
        }
    }
    let mut found: Vec<_> = counts.into_values().collect();
    found.sort();
    let expected =
        STORM.map(|(verb, path)| ((path.to_owned(), verb.to_owned()), u64::from(STORMED)));
    let mut expected = Vec::from(expected);
    expected.sort();
    ensure!(found == expected, "{found:#?}");

    // The control: nothing of it is refused outside.
    let mut talk = ground.talk(Side::Outside)?;
    ensure!(talk.ask(&["storm-of-names"])? == "0", "the control was refused");
    Ok(())
}

/// A call that a signal interrupted is performed once.
pub(super) fn interrupted(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    for side in [Side::Inside, Side::Outside] {
        let mut talk = ground.talk(side)?;
        let said = talk.ask(&["names-under-signals"])?;
        ensure!(said == "ok", "{side:?}: {said}");
    }
    Ok(())
}
