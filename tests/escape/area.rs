//! An area: a table of rows that one jail answers, once for each identity.

use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, ensure};
use libtest_mimic::{Completion, Failed, Trial};

use crate::identity::Identity;
use crate::needs::{self, FULL, Missing, Need};
use crate::play::{Played, play};
use crate::row::{Control, Defence, Expect, Row};

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

type Shared = Arc<OnceLock<Result<Played, String>>>;

impl Area {
    /// The names of its rows and facts, with what each is about.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, Defence)> {
        let facts = self.facts.iter().map(|fact| (fact.name, fact.defence));
        self.rows.iter().map(|row| (row.name, row.defence)).chain(facts)
    }

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
            let played =
                shared.get_or_init(|| play(&area, identity).map_err(|error| format!("{error:#}")));
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

fn control_of(row: &Row) -> Option<Expect> {
    match row.control {
        Control::Outside(expected)
        | Control::OutsideAsRoot(expected)
        | Control::Twin(_, expected) => Some(expected),
        Control::Itself => None,
    }
}
