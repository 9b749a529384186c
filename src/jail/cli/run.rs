//! `kvro-jail [run] -- CMD`: from flags to a finished run.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use anyhow::anyhow;
use kvro_evidence::RunReport;
use kvro_ledger::event::EndedBy;
use kvro_ledger::{Clock, RunId, StateDir, read};
use kvro_sandbox::Stage;

use super::args::RunArgs;
use super::repair::close_dead_runs;
use crate::failure::Failure;
use crate::policy;
use crate::report::{ReportFile, Style, summary};
use crate::start::{self, Desk, Request, Say};
use crate::surroundings::Surroundings;
use crate::workspace::{self, PlaceError};

/// Runs the command of `args`; gives the exit code of the whole program.
///
/// `notes` is where our own words go: the run's streams belong to the command.
pub(super) fn run(
    args: &RunArgs,
    surroundings: &Surroundings,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<u8, Failure> {
    // It makes the jail's processes while we look around. An error is told when it is needed.
    let early = if args.dry_run { None } else { Stage::start().ok() };
    let place = workspace::settle(surroundings, &args.workspace).map_err(refused_place)?;
    let say = if args.quiet { Say::Nothing } else { Say::Everything };
    let clock = Clock::system();
    let state = if args.dry_run {
        None
    } else {
        let state = StateDir::open(&surroundings.state_dir())
            .map_err(|error| Failure::setup(error).with_hint(start::STATE_HINT))?;
        // Before anything in the workspace is read: a policy there may be what a run planted.
        close_dead_runs(&state, &clock, say, notes)?;
        Some(state)
    };
    let command = args.command.first().map(OsString::as_os_str);
    let profile = args.profile.as_deref();
    let loaded = policy::load(surroundings, &place, &args.overlay(), profile, command)
        .map_err(Failure::setup)?;
    let files = &loaded.policy.files;
    // A write grant of what holds the workspace is one of the workspace alone.
    let write = files.write.iter().filter(|granted| !place.starts_with(&granted.value));
    for granted in files.read.iter().chain(write) {
        workspace::grantable(surroundings, &granted.value).map_err(refused_place)?;
    }
    say.policy(notes, &loaded.warnings);
    let run = RunId::new(clock.now(), salt());
    let request = Request {
        run: &run,
        surroundings,
        workspace: &place,
        loaded: &loaded,
        command: &args.command,
        grace: args.grace.0,
    };
    let Some(state) = state else {
        let scratch = std::env::temp_dir().join(format!("kvro-jail-{run}"));
        let printed = start::dry_run(&request, &scratch, out);
        // Nothing but empty directories is in there.
        drop(std::fs::remove_dir_all(&scratch));
        return printed.map(|()| 0);
    };
    let report = args.report.as_deref().map(ReportFile::reserve).transpose();
    let report = report.map_err(Failure::setup)?;
    let desk = &mut Desk { state: &state, clock: &clock, say, notes: &mut *notes };
    let ended = start::run(&request, early, desk);
    conclude(report.as_ref(), &state, &run, say, notes)?;
    let outcome = ended?;
    if outcome.ended_by == EndedBy::Setup {
        // Said even when nothing else is: the command did not run.
        return Err(Failure { code: outcome.code, ..Failure::setup(anyhow!(outcome.reason)) });
    }
    Ok(outcome.code)
}

fn refused_place(error: PlaceError) -> Failure {
    let hint = error.hint();
    Failure::setup(error).with_hint(hint)
}

/// The summary and the report, as folds over what is on record.
fn conclude(
    file: Option<&ReportFile>,
    state: &StateDir,
    run: &RunId,
    say: Say,
    notes: &mut dyn Write,
) -> Result<(), Failure> {
    if say == Say::Nothing && file.is_none() {
        return Ok(());
    }
    let path = state.ledger_path(run).display().to_string();
    let entries = read::entries(state, run).map_err(Failure::during_run)?;
    let report = RunReport::from_entries(&path, &entries);
    if say == Say::Everything {
        let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let style = if colours { Style::Coloured } else { Style::Plain };
        // A stderr that is gone is no reason to fail.
        drop(notes.write_all(summary(&report, style).as_bytes()));
    }
    let Some(file) = file else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(&report).map_err(Failure::during_run)?;
    text.push('\n');
    if let Err(error) = file.write(&text) {
        // The run went as it went; its exit code says so, and the ledger has it all.
        let hint = format!("`kvro-jail ledger show {run} --report` prints it");
        Say::Everything.warning(notes, &format!("the report is not written: {error}"), &hint);
    }
    Ok(())
}

/// Tells runs of the same second apart.
fn salt() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    // The keys of a RandomState come from the kernel's random numbers.
    let random = RandomState::new().hash_one(std::process::id());
    u32::try_from(random >> 32).unwrap_or(0)
}
