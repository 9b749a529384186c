//! An area: a table of rows that one jail answers, once for each identity.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, ensure};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use crate::identity::Identity;
use crate::needs::{self, FULL, Missing, Need};
use crate::prisoner::Answer;
use crate::record;
use crate::row::{Control, Defence, Row};
use crate::run::{Ran, start};
use crate::world::{Side, World};

/// A table and what is asked of the same jail beside it.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) name: &'static str,
    /// Options of the jail.
    pub(crate) options: &'static [&'static str],
    /// Variables of the caller.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// Files of the workspace that no row names.
    pub(crate) files: &'static [&'static str],
    pub(crate) rows: Vec<Row>,
    pub(crate) facts: &'static [Fact],
}

/// Something that must hold outside after the rows were answered.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) defence: Defence,
    pub(crate) needs: &'static [Need],
    pub(crate) check: fn(&Played) -> anyhow::Result<()>,
}

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

type Shared = Arc<OnceLock<Result<Played, String>>>;

impl Area {
    /// The area's rows and facts as trials; the jail runs when the first of them does.
    pub(crate) fn trials(self) -> Vec<Trial> {
        let area = Arc::new(self);
        let mut trials = Vec::new();
        for &identity in Identity::available() {
            let shared = Shared::default();
            for (place, row) in area.rows.iter().enumerate() {
                let check = move |played: &Played| judge(played, place);
                trials.push(trial(&area, &shared, identity, (row.name, row.needs), check));
            }
            for fact in area.facts {
                let check = move |played: &Played| {
                    (fact.check)(played)
                        .with_context(|| format!("{:?}; the run: {}", fact.defence, played.ran))
                };
                trials.push(trial(&area, &shared, identity, (fact.name, fact.needs), check));
            }
        }
        trials
    }
}

fn trial(
    area: &Arc<Area>,
    shared: &Shared,
    identity: Identity,
    (name, needs): (&str, &'static [Need]),
    check: impl FnOnce(&Played) -> anyhow::Result<()> + Send + 'static,
) -> Trial {
    let (area, shared) = (Arc::clone(area), Arc::clone(shared));
    let name = title(area.name, name, identity);
    Trial::ignorable_test(name, move || {
        let needs = [&FULL[..], needs].concat();
        guarded(&needs, identity, || {
            let played = shared
                .get_or_init(|| play(&area, identity).map_err(|error| format!("{error:#}")));
            played.as_ref().map_err(|error| anyhow::anyhow!("{error}")).and_then(check)
        })
    })
}

/// The name of a trial.
pub(crate) fn title(area: &str, name: &str, identity: Identity) -> String {
    format!("{area}::{name}::{}", identity.to_string().replace(' ', "_"))
}

/// Runs `check` where `needs` are met.
pub(crate) fn guarded(
    needs: &[Need],
    identity: Identity,
    check: impl FnOnce() -> anyhow::Result<()>,
) -> Result<Completion, Failed> {
    match needs::missing(needs, identity) {
        Some(Missing::Skip(why)) => Ok(Completion::ignored_with(why)),
        Some(Missing::Fail(why)) => Err(Failed::from(format!("required, but {why}"))),
        None => match check() {
            Ok(()) => Ok(Completion::Completed),
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        },
    }
}

fn judge(played: &Played, place: usize) -> anyhow::Result<()> {
    let (row, answers) = played.rows.get(place).context("the row was not played")?;
    let said = &answers.inside.said;
    ensure!(
        row.inside.matches(said),
        "{:?} inside: {said:?} instead of {}",
        row.defence,
        row.inside
    );
    let (Some(answer), expected) = (&answers.control, control_of(row)) else { return Ok(()) };
    let Some(expected) = expected else { return Ok(()) };
    let said = &answer.said;
    ensure!(expected.matches(said), "the control said {said:?} instead of {expected}");
    Ok(())
}

fn control_of(row: &Row) -> Option<crate::row::Expect> {
    match row.control {
        Control::Outside(expected)
        | Control::OutsideAsRoot(expected)
        | Control::Twin(_, expected) => Some(expected),
        Control::Itself => None,
    }
}

/// Runs the jail of `area` and its controls.
fn play(area: &Area, identity: Identity) -> anyhow::Result<Played> {
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
            _ => controls.remove(&place),
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
