//! The words of the subcommand, and which run they mean.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use kvro_ledger::{RunId, StateDir};

use crate::cli::ledger::{check, list, processes, show};
use crate::report::harmless;

/// Look at what is on record
#[derive(Debug, Args)]
pub struct LedgerArgs {
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// List the runs on record
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the entries of a run
    Show {
        /// The run, or how its name begins; `last` for the latest
        run: String,
        /// Print the entries as they are on record, one a line
        #[arg(long, conflicts_with = "report")]
        json: bool,
        /// Print the report of the run as JSON
        #[arg(long)]
        report: bool,
        /// Print what ran, as a tree; with --json as a list
        #[arg(long, conflicts_with = "report")]
        processes: bool,
    },
    /// Show the last entries of a run
    Tail {
        /// The run, or how its name begins
        #[arg(default_value = LAST)]
        run: String,
        /// Go on until the run ends
        #[arg(short, long)]
        follow: bool,
    },
    /// Check that nothing was changed: exit code 0 intact, 1 broken, 2 unreadable or missing
    Verify {
        /// One run, or how its name begins; all of them otherwise
        run: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

const LAST: &str = "last";

/// Does what `args` say with the ledgers below `state`; gives the exit code.
pub fn run(args: &LedgerArgs, state: &Path, out: &mut dyn Write) -> anyhow::Result<u8> {
    match dispatch(&args.command, state, out) {
        // `… | head` has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(0),
        result => result,
    }
}

fn dispatch(command: &LedgerCommand, path: &Path, out: &mut dyn Write) -> anyhow::Result<u8> {
    match command {
        LedgerCommand::List { json: true } => list::as_json(existing(path)?.as_ref(), out)?,
        LedgerCommand::List { json: false } => list::as_table(existing(path)?.as_ref(), out)?,
        LedgerCommand::Show { run, json, report, processes } => {
            let (state, run) = find(path, run)?;
            match (processes, json, report) {
                (true, true, _) => processes::as_json(&state, &run, out)?,
                (true, false, _) => processes::as_tree(&state, &run, out)?,
                (false, true, _) => show::as_json(&state, &run, out)?,
                (false, false, true) => show::report(&state, &run, out)?,
                (false, false, false) => show::entries(&state, &run, out)?,
            }
        }
        LedgerCommand::Tail { run, follow } => {
            let (state, run) = find(path, run)?;
            if *follow {
                show::follow(&state, &run, out)?;
            } else {
                show::tail(&state, &run, out)?;
            }
        }
        LedgerCommand::Verify { run, json } => {
            let checked = match run {
                Some(run) => find(path, run).map(|(state, run)| check::one(&state, &run)),
                None => check::all(path),
            };
            return if *json { check::as_json(checked, out) } else { check::as_text(checked, out) };
        }
    }
    Ok(0)
}

/// The state directory, unless there was no run yet.
fn existing(path: &Path) -> anyhow::Result<Option<StateDir>> {
    match StateDir::existing(path) {
        Ok(state) => Ok(Some(state)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error).context("the ledgers cannot be used"),
    }
}

/// The one run whose name begins with `wanted`.
fn find(path: &Path, wanted: &str) -> anyhow::Result<(StateDir, RunId)> {
    let Some(state) = existing(path)? else { bail!("there is no run on record") };
    let mut runs = state.runs()?;
    if wanted == LAST {
        let last = runs.pop().context("there is no run on record")?;
        return Ok((state, last));
    }
    runs.retain(|run| run.as_str().starts_with(wanted));
    match runs.as_slice() {
        [run] => Ok((state, run.clone())),
        [] => bail!("there is no run {} on record", harmless(wanted)),
        [one, .., other] => {
            let (count, wanted) = (runs.len(), harmless(wanted));
            bail!("{count} runs begin with {wanted}, from {one} to {other}")
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}
