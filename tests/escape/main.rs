//! Escapes: what a prisoner tries, and what must come of it.
//!
//! This binary is judge and prisoner. As the prisoner (`__probe`) it performs one thing and says
//! what the kernel answered; as the judge it has that done inside a jail and outside of it. A row
//! of a table is a probe, its exact answer inside, and a control that shows that the probe itself
//! works: without one, a probe that always fails would prove every wall. Each row runs as an
//! ordinary user and, where the caller is root, as root too.

#[path = "../support/census.rs"]
mod census;
#[path = "../support/copied.rs"]
mod copied;
#[path = "../support/identity.rs"]
mod identity;

mod area;
mod cases;
mod needs;
mod photograph;
mod planted;
mod play;
mod prisoner;
mod raw;
mod record;
mod row;
mod run;
mod sources;
mod talk;
mod tools;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, probe)) = words.split_first()
        && first == prisoner::ARGUMENT
    {
        return prisoner::serve(probe);
    }
    let arguments = Arguments::from_args();
    // Held until every case is over.
    let (_directory, trials) = match tools::lay_out() {
        Ok(directory) => (Some(directory), cases::all()),
        Err(error) => (None, vec![unprepared(format!("{error:#}"))]),
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A suite that cannot start fails; it does not pass for want of cases.
fn unprepared(why: String) -> Trial {
    Trial::test("the_suite_is_prepared", move || Err(Failed::from(why)))
}
