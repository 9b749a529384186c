//! `kvro-jail kill RUN`: ends a run and everything in it.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use kvro_ledger::{RunId, StateDir};

use crate::supervise::{Request, ask};

/// Options of `kill`.
#[derive(Debug, clap::Args)]
pub struct KillArgs {
    /// The run, or the beginning of its name
    run: String,
}

/// Asks the run's supervisor to end it.
pub fn run(args: &KillArgs, state: &Path, out: &mut dyn Write) -> anyhow::Result<u8> {
    let state = StateDir::existing(state).context("there are no runs")?;
    let run = find(&state, &args.run)?;
    ask(&state.run_dir(&run), Request::Kill).with_context(|| format!("cannot end {run}"))?;
    writeln!(out, "ending {run}")?;
    Ok(0)
}

fn find(state: &StateDir, prefix: &str) -> anyhow::Result<RunId> {
    let runs = state.runs()?;
    let is_alive = |run: &RunId| ask(&state.run_dir(run), Request::Status).is_ok();
    let named = runs.into_iter().filter(|run| run.as_str().starts_with(prefix));
    let mut named = named.filter(is_alive);
    match (named.next(), named.next()) {
        (Some(run), None) => Ok(run),
        (None, _) => bail!("no run that is alive begins with {prefix}; `kvro-jail ps` lists them"),
        (Some(_), Some(_)) => bail!("more than one run begins with {prefix}"),
    }
}
