//! `ledger list`: one line a run, oldest first.

use std::io::{self, Write};

use kvro_evidence::RunReport;
use kvro_ledger::event::Cost;
use kvro_ledger::read::{Lines, ReadError, entries};
use kvro_ledger::{RunId, StateDir};
use serde_json::{Value, json};

use crate::report::{harmless, span};

pub(super) fn as_table(state: Option<&StateDir>, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "{:<22}  {:<9}  {:>4}  {:>12}  {:>5}  {:>10}  COMMAND",
        "RUN", "STATE", "EXIT", "TIME", "TURNS", "COST"
    )?;
    each(state, |run, row| table_row(run, row, out))
}

pub(super) fn as_json(state: Option<&StateDir>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    each(state, |run, row| {
        rows.push(json_row(run, row));
        Ok(())
    })?;
    writeln!(out, "{}", crate::report::harmless_json(&Value::from(rows).to_string()))?;
    Ok(())
}

type Row = Result<(Standing, RunReport), ReadError>;

fn each(
    state: Option<&StateDir>,
    mut show: impl FnMut(&RunId, Row) -> io::Result<()>,
) -> anyhow::Result<()> {
    let Some(state) = state else { return Ok(()) };
    for run in state.runs()? {
        show(&run, row(state, &run))?;
    }
    Ok(())
}

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Live,
    Ended,
    /// Its supervisor died; the next run closes its ledger.
    Abandoned,
}

impl Standing {
    const fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ended => "ended",
            Self::Abandoned => "abandoned",
        }
    }
}

fn row(state: &StateDir, run: &RunId) -> Row {
    let is_held = Lines::open(state, run)?.is_held();
    let path = state.ledger_path(run).display().to_string();
    let report = RunReport::from_entries(&path, &entries(state, run)?);
    let standing = match (is_held, report.ended_by) {
        (true, _) => Standing::Live,
        (false, Some(_)) => Standing::Ended,
        (false, None) => Standing::Abandoned,
    };
    Ok((standing, report))
}

fn table_row(run: &RunId, row: Row, out: &mut dyn Write) -> io::Result<()> {
    let (standing, report) = match row {
        Ok(row) => row,
        Err(error) => return writeln!(out, "{run:<22}  {:<9}  {error}", "broken"),
    };
    let exit = report.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string());
    let time = report.duration_ms.map_or_else(|| "-".to_owned(), span);
    let cost = match report.cost_usd {
        Cost::Known(amount) => format!("${amount}"),
        Cost::Unknown => "unknown".to_owned(),
    };
    let (standing, turns, command) = (standing.word(), report.turns, report.command.join(" "));
    let command = harmless(&command);
    writeln!(
        out,
        "{run:<22}  {standing:<9}  {exit:>4}  {time:>12}  {turns:>5}  {cost:>10}  {command}"
    )
}

fn json_row(run: &RunId, row: Row) -> Value {
    match row {
        Err(error) => json!({"run": run, "state": "broken", "error": error.to_string()}),
        Ok((standing, report)) => json!({
            "run": run,
            "state": standing.word(),
            "command": report.command,
            "started": report.started,
            "ended": report.ended,
            "exit_code": report.exit_code,
            "ended_by": report.ended_by,
            "duration_ms": report.duration_ms,
            "turns": report.turns,
            "calls": report.calls,
            "cost_usd": report.cost_usd,
            "ledger": report.ledger,
        }),
    }
}
