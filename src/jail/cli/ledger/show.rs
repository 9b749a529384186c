//! `ledger show` and `ledger tail`: the entries of one run.

use std::collections::VecDeque;
use std::io::Write;
use std::thread;
use std::time::Duration;

use kvro_evidence::RunReport;
use kvro_ledger::read::{Lines, entries as read};
use kvro_ledger::{RunId, StateDir};

use crate::cli::ledger::line::line;
use crate::report::harmless_json;

/// How many entries `tail` begins with.
const TAIL: usize = 20;
/// How often a followed ledger is looked at.
const INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn entries(state: &StateDir, run: &RunId, out: &mut dyn Write) -> anyhow::Result<()> {
    rest(&mut Lines::open(state, run)?, out)
}

/// The lines of the ledger. Apart from characters that a terminal acts upon, which are written by
/// number, these are the bytes on record.
pub(super) fn as_json(state: &StateDir, run: &RunId, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut lines = Lines::open(state, run)?;
    while let Some(bytes) = lines.next_line()? {
        writeln!(out, "{}", harmless_json(&String::from_utf8_lossy(&bytes)))?;
    }
    Ok(())
}

pub(super) fn report(state: &StateDir, run: &RunId, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = state.ledger_path(run).display().to_string();
    let report = RunReport::from_entries(&path, &read(state, run)?);
    writeln!(out, "{}", harmless_json(&serde_json::to_string_pretty(&report)?))?;
    Ok(())
}

pub(super) fn tail(state: &StateDir, run: &RunId, out: &mut dyn Write) -> anyhow::Result<()> {
    last(&mut Lines::open(state, run)?, out)
}

/// Like `tail`, and then what comes, until nobody writes the ledger any more.
pub(super) fn follow(state: &StateDir, run: &RunId, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut lines = Lines::open(state, run)?;
    last(&mut lines, out)?;
    loop {
        // Asked first: what is written before the writer lets go is read below.
        let is_held = lines.is_held();
        rest(&mut lines, out)?;
        out.flush()?;
        if !is_held {
            return Ok(());
        }
        thread::sleep(INTERVAL);
    }
}

fn rest(lines: &mut Lines, out: &mut dyn Write) -> anyhow::Result<()> {
    while let Some(bytes) = lines.next_line()? {
        writeln!(out, "{}", line(&bytes))?;
    }
    Ok(())
}

fn last(lines: &mut Lines, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut last = VecDeque::with_capacity(TAIL);
    while let Some(bytes) = lines.next_line()? {
        if last.len() == TAIL {
            last.pop_front();
        }
        last.push_back(bytes);
    }
    for bytes in last {
        writeln!(out, "{}", line(&bytes))?;
    }
    Ok(())
}
