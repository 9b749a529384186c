//! The tables, by what they try.

mod environment;
mod files;
mod kernel;
mod known;
mod lifetime;
mod network;
mod place;
mod privileges;
mod works;

use libtest_mimic::{Completion, Trial};

use crate::area::{Area, guarded, title};
use crate::identity::Identity;
use crate::needs::{FULL, Need};
use crate::row::Defence;

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
    let areas = [
        kernel::area(),
        privileges::area(),
        environment::area(),
        files::area(),
        network::area(),
        network::without_a_door(),
        works::area(),
    ];
    let mut trials: Vec<Trial> = areas.into_iter().flat_map(Area::trials).collect();
    for (area, cases) in
        [("lifetime", lifetime::CASES), ("place", place::CASES), ("known", known::CASES)]
    {
        trials.extend(cases.iter().flat_map(|case| trials_of(area, *case)));
    }
    trials.extend(elsewhere());
    trials
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
