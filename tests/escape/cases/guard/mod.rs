//! The guard: what is closed by its name stays closed for the whole run, whoever moves, replaces or
//! makes what, and everything else works as if no guard were there.
//!
//! The jails of these cases talk (see [`crate::talk`]), so that the host changes files while they
//! run. Each case does the same to a tree without a jail.

mod attacks;
mod beyond;
mod editors;
mod ground;
mod host;
mod later;
mod planted;
mod race;
mod scale;
mod settings;
mod storm;
mod taken;
mod usual;

use super::Case;
use crate::identity::Identity;
use crate::row::Defence;

pub(super) const CASES: &[Case] = &[
    case("nothing_hidden_is_read_in_a_race_with_the_host", race::race),
    case("attacks_by_name_change_nothing", attacks::attacks),
    case("what_the_agent_does_to_names_works_as_ever", usual::usual),
    case("what_the_agent_does_is_seen_on_the_host", usual::seen),
    case("what_the_host_does_is_seen_inside", host::seen),
    case("what_the_host_does_at_once_is_seen_inside", host::crowd),
    case("editors_on_both_sides_see_each_others_saves", editors::both),
    case("hidden_files_stay_so_however_the_host_saves_them", editors::hidden),
    case("closed_names_cannot_be_made_in_new_directories", later::made_by_the_agent),
    case("hidden_names_that_the_host_makes_are_not_there", later::made_by_the_host),
    case("a_new_directory_of_the_hosts_shows_all_but_what_is_hidden", later::directory),
    case("what_the_host_gives_a_hidden_name_is_gone", later::renamed),
    case("a_hidden_name_that_the_host_makes_far_off_is_soon_closed", beyond::far),
    case("whatever_is_at_a_hidden_name_is_closed", beyond::kinds),
    case("protected_names_cannot_be_made_where_they_are_not", planted::planted),
    case("a_protected_name_of_the_repository_cannot_be_made", planted::in_the_repository),
    case("a_pointer_to_a_repository_leads_where_it_led", planted::pointers),
    case("thousands_of_hidden_names_are_closed", scale::from_the_beginning),
    case("thousands_of_hidden_names_that_the_host_moves_in_are_not_there", scale::moved_in),
    case("an_agents_kept_settings_are_not_its_to_change", settings::settings),
    case("a_call_that_a_signal_interrupts_is_performed_once", storm::interrupted),
    case("each_refused_name_is_one_event_with_a_count", storm::storm),
    case("a_jail_whose_calls_somebody_else_judges_is_not_run", taken::taken),
];

const fn case(name: &'static str, run: fn(Identity) -> anyhow::Result<()>) -> Case {
    Case { name, defence: Defence::Guard, needs: &[], run }
}
