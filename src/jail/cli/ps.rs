//! `kvro-jail ps`: the runs that are alive.

use std::io::Write;
use std::path::Path;

use kvro_ledger::StateDir;

use crate::report::harmless;
use crate::supervise::{Answer, Request, Status, ask};

/// Options of `ps`.
#[derive(Debug, clap::Args)]
pub struct PsArgs {
    /// Print JSON, one object for all
    #[arg(long)]
    json: bool,
}

/// Lists the runs of this user that are alive.
pub fn run(args: &PsArgs, state: &Path, out: &mut dyn Write) -> anyhow::Result<u8> {
    let alive = alive(state)?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&alive)?)?;
        return Ok(0);
    }
    for status in alive {
        let command = harmless(&status.command.join(" ")).to_string();
        writeln!(
            out,
            "{}  pid {}  since {}  {} turns  {} USD  {command}",
            status.run, status.pid, status.started, status.turns, status.cost_usd
        )?;
    }
    Ok(0)
}

fn alive(state: &Path) -> anyhow::Result<Vec<Status>> {
    let state = match StateDir::existing(state) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        found => found?,
    };
    let mut alive = Vec::new();
    for run in state.runs()? {
        // A run that ended has a socket that nobody listens on, or none.
        if let Ok(Answer::Status(status)) = ask(&state.run_dir(&run), Request::Status) {
            alive.push(status);
        }
    }
    Ok(alive)
}
