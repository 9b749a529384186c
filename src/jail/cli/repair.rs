//! What an earlier supervisor left when it was killed: an open ledger, and a workspace that nobody
//! inspected. The next run sees to both, and so does `kvro-jail doctor --repair`.

use std::io::Write;

use kvro_ledger::event::{AlertRaised, Quarantined};
use kvro_ledger::recover::Recovered;
use kvro_ledger::{Clock, Event, RunId, StateDir, recover_with};

use crate::failure::Failure;
use crate::inspect::{self, Keep};
use crate::start::Say;

/// So many findings are named; the ledger of their run has them all.
const NAMED: usize = 10;

/// Closes the ledger of every run that was cut off and inspects what it left; says so, and gives
/// how many there were.
pub(super) fn close_dead_runs(
    state: &StateDir,
    clock: &Clock,
    say: Say,
    notes: &mut dyn Write,
) -> Result<usize, Failure> {
    let mut left = Vec::new();
    let recovered = recover_with(state, clock, |run| {
        let found = inspect::inspect_dead(state, run);
        left.push((run.clone(), found.keep, found.events.clone()));
        found.events
    });
    let recovered = recovered.map_err(|error| {
        Failure::setup(error).with_hint("`kvro-jail ledger verify` names what is broken")
    })?;
    let many = recovered.len();
    for Recovered { run, outcome } in recovered {
        match outcome {
            Ok(_) => say.line(notes, &format!("closed the ledger of {run}, which was cut off")),
            Err(error) => {
                let what = format!("the ledger of {run} stays open: {error}");
                say.warning(notes, &what, "`kvro-jail ledger verify` tells more");
                continue;
            }
        }
        if let Some((_, keep, events)) = left.iter().find(|(of, _, _)| *of == run) {
            let events: Vec<&Event> = events.iter().map(|(_, event)| event).collect();
            tell(&run, &events, say, notes);
            if *keep == Keep::No {
                // A record that stays is not read again: its run is closed.
                drop(inspect::forget(state, &run));
            }
        }
    }
    Ok(many)
}

fn tell(run: &RunId, events: &[&Event], say: Say, notes: &mut dyn Write) {
    for event in events.iter().take(NAMED) {
        if let Event::Quarantined(Quarantined { path, kept, .. }) = event {
            say.line(notes, &format!("quarantined, left by {run}: {path} is now {kept}"));
        }
        if let Event::AlertRaised(AlertRaised { what, detail }) = event {
            say.line(notes, &format!("alert: left by {run}: {what}: {detail}"));
        }
    }
    let more = events.len().saturating_sub(NAMED);
    if more > 0 {
        let hint = format!("`kvro-jail ledger show {run}` has them all");
        say.line(notes, &format!("and {more} more; {hint}"));
    }
}
