//! Plays an area: its jail, with every probe in it, and the controls outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::area::Area;
use crate::identity::Identity;
use crate::prisoner::Answer;
use crate::record;
use crate::row::{Control, Row};
use crate::run::{Ran, start};
use crate::world::{Side, World};

/// What came of an area's jail and its controls.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) world: World,
    pub(crate) rows: Vec<(Row, Answers)>,
    /// The ledger of the run.
    pub(crate) entries: Vec<Value>,
    /// The workspace before and after.
    pub(crate) before: BTreeMap<PathBuf, Seen>,
    pub(crate) after: BTreeMap<PathBuf, Seen>,
    /// Connections to the host's server while the jail lived.
    pub(crate) connections: usize,
    pub(crate) ran: Ran,
}

/// What a row's probes answered.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    pub(crate) inside: Answer,
    /// `None` where nobody could run the control.
    pub(crate) control: Option<Answer>,
}

/// A file as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    content: Vec<u8>,
    mode: u32,
    inode: u64,
    names: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Runs the jail of `area` and its controls.
pub(crate) fn play(area: &Area, identity: Identity) -> anyhow::Result<Played> {
    let files = area.files.iter().map(|&file| vec![file.to_owned()]);
    let words: Vec<Vec<String>> = area.rows.iter().flat_map(words_of).chain(files).collect();
    let world = World::set(identity, &words)?;
    let before = look(&world.work())?;
    let probes: Vec<Vec<String>> = area.rows.iter().map(|row| row.probe.words()).collect();
    let twins: Vec<Vec<String>> = area.rows.iter().filter_map(twin_of).collect();

    let inside = resolved(&world, probes.iter().chain(&twins), Side::Inside)?;
    let mut command = world.jail(area.options, &arguments(&inside))?;
    command.envs(area.env.iter().copied());
    let ran = start(&mut command, world.root())?.end()?;
    let connections = world.connections();
    let answered = answers(&ran).with_context(|| format!("inside: {ran}"))?;
    ensure!(answered.len() == inside.len(), "{} answers inside: {ran}", answered.len());
    let after = look(&world.work())?;
    let run = record::runs(&world.state())?.pop().context("no run is on record")?;
    let entries = record::entries(&run)?;

    let mut controls = controls(area, &world)?;
    let mut twins = answered[probes.len()..].iter();
    let rows = area.rows.iter().zip(&answered).enumerate().map(|(place, (row, inside))| {
        let control = match row.control {
            Control::Twin(..) => twins.next().cloned(),
            Control::Outside(_) | Control::OutsideAsRoot(_) | Control::Itself => {
                controls.remove(&place)
            }
        };
        (*row, Answers { inside: inside.clone(), control })
    });
    let rows = rows.collect();
    Ok(Played { world, rows, entries, before, after, connections, ran })
}

/// The controls outside, by the place of their rows.
fn controls(area: &Area, world: &World) -> anyhow::Result<BTreeMap<usize, Answer>> {
    let mut answered = BTreeMap::new();
    for root in [false, true] {
        let identity = if root { Identity::Root } else { world.identity };
        if !Identity::available().contains(&identity) {
            continue;
        }
        let wanted = |row: &Row| match row.control {
            Control::Outside(_) => !root,
            Control::OutsideAsRoot(_) => root,
            Control::Twin(..) | Control::Itself => false,
        };
        let rows = area.rows.iter().enumerate();
        let (places, probes): (Vec<usize>, Vec<Vec<String>>) =
            rows.filter(|(_, row)| wanted(row)).map(|(at, row)| (at, row.probe.words())).unzip();
        if probes.is_empty() {
            continue;
        }
        let probes = resolved(world, probes.iter(), Side::Outside)?;
        let mut command: Command = world.outside(identity, &arguments(&probes))?;
        command.envs(area.env.iter().copied());
        let ran = start(&mut command, world.root())?.end()?;
        let answers = answers(&ran).with_context(|| format!("outside: {ran}"))?;
        ensure!(answers.len() == places.len(), "{} answers outside: {ran}", answers.len());
        answered.extend(places.into_iter().zip(answers));
    }
    Ok(answered)
}

fn words_of(row: &Row) -> Vec<Vec<String>> {
    [row.probe.words()].into_iter().chain(twin_of(row)).collect()
}

fn twin_of(row: &Row) -> Option<Vec<String>> {
    match row.control {
        Control::Twin(words, _) => Some(words.iter().map(|&word| word.to_owned()).collect()),
        Control::Outside(_) | Control::OutsideAsRoot(_) | Control::Itself => None,
    }
}

/// The probes as arguments of `each`.
fn resolved<'p>(
    world: &World,
    probes: impl Iterator<Item = &'p Vec<String>>,
    side: Side,
) -> anyhow::Result<Vec<String>> {
    let resolve = |words: &Vec<String>| {
        let words: Vec<String> = words.iter().map(|word| world.resolve(word, side)).collect();
        Ok(serde_json::to_string(&words)?)
    };
    probes.map(resolve).collect()
}

fn arguments(probes: &[String]) -> Vec<&str> {
    ["each"].into_iter().chain(probes.iter().map(String::as_str)).collect()
}

fn answers(ran: &Ran) -> anyhow::Result<Vec<Answer>> {
    ran.stdout.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Every file below `place`.
pub(crate) fn look(place: &Path) -> anyhow::Result<BTreeMap<PathBuf, Seen>> {
    let mut seen = BTreeMap::new();
    let mut open = vec![place.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        }
        if metadata.is_file() {
            let seen_file = Seen {
                content: fs::read(&path)?,
                mode: metadata.mode(),
                inode: metadata.ino(),
                names: metadata.nlink(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            };
            seen.insert(path.strip_prefix(place)?.to_owned(), seen_file);
        }
    }
    Ok(seen)
}
