//! The tables, by what they try.

mod environment;
mod files;
mod guard;
mod kernel;
mod known;
mod lifetime;
mod network;
mod place;
mod privileges;
mod toolchains;
mod works;

use libtest_mimic::{Completion, Trial};

use crate::area::{Area, guarded, title};
use crate::identity::Identity;
use crate::needs::{FULL, Need};
use crate::row::Defence;
use crate::sources;

/// A case with a jail of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) defence: Defence,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(Identity) -> anyhow::Result<()>,
}

/// Every trial.
pub(crate) fn all() -> Vec<Trial> {
    let mut trials: Vec<Trial> = areas().into_iter().flat_map(Area::trials).collect();
    trials.extend(alone().flat_map(|(area, case)| trials_of(area, *case)));
    trials.extend(sources::trials());
    trials.extend(elsewhere());
    trials
}

/// Every case by its name, `AREA::CASE`, with what it is about.
pub(crate) fn named() -> impl Iterator<Item = (String, Defence)> {
    let rows = areas().into_iter().flat_map(|area| {
        let named: Vec<_> = area.named().collect();
        named.into_iter().map(move |(name, defence)| (area.name, name, defence))
    });
    let alone = alone().map(|(area, case)| (area, case.name, case.defence));
    rows.chain(alone).map(|(area, name, defence)| (format!("{area}::{name}"), defence))
}

fn areas() -> [Area; 7] {
    [
        kernel::area(),
        privileges::area(),
        environment::area(),
        files::area(),
        network::area(),
        network::without_a_door(),
        works::area(),
    ]
}

/// The cases with a jail of their own, each with its area.
fn alone() -> impl Iterator<Item = (&'static str, &'static Case)> {
    [
        ("guard", guard::CASES),
        ("lifetime", lifetime::CASES),
        ("place", place::CASES),
        ("known", known::CASES),
        ("toolchains", toolchains::CASES),
    ]
    .into_iter()
    .flat_map(|(area, cases)| cases.iter().map(move |case| (area, case)))
}

fn trials_of(area: &str, case: Case) -> impl Iterator<Item = Trial> {
    Identity::available().iter().map(move |&identity| {
        Trial::ignorable_test(title(area, case.name, identity), move || {
            guarded(&[&FULL[..], case.needs].concat(), identity, || {
                (case.run)(identity).map_err(|error| error.context(format!("{:?}", case.defence)))
            })
        })
    })
}

/// What cannot be tried on this machine, by name, so that nobody takes it for held.
fn elsewhere() -> impl Iterator<Item = Trial> {
    const CASES: [(&str, &str); 3] = [
        (
            "elsewhere::calls_of_the_other_architecture",
            "each architecture tries its own table; this machine has one",
        ),
        (
            "elsewhere::calls_through_the_x32_entry_point_by_an_x32_program",
            "no common kernel runs x32 programs; kernel::agent_cannot_call_by_an_x32_number has the \
             number alone",
        ),
        (
            "elsewhere::a_rule_over_programs_is_not_evaded",
            "there are no rules over which programs may run, so there is nothing to evade",
        ),
    ];
    CASES
        .into_iter()
        .map(|(name, why)| Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why))))
}
