//! What a run left on record, read from outside.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::identity::Identity;
use crate::tools;

/// The runs below the state directory `state`, oldest first.
pub(crate) fn runs(state: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let directory = state.join("kvro-jail/runs");
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("no runs in {}", directory.display()))?,
    };
    let runs: std::io::Result<Vec<PathBuf>> =
        entries.map(|entry| Ok(entry?.path())).collect();
    let mut runs = runs?;
    runs.sort();
    Ok(runs)
}

/// The entries of a run's ledger.
pub(crate) fn entries(run: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(run.join("ledger.jsonl"))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// What was recorded of `event`: the `data` of each.
pub(crate) fn data_of<'e>(entries: &'e [Value], event: &str) -> Vec<&'e Value> {
    entries.iter().filter(|entry| entry["event"] == event).map(|entry| &entry["data"]).collect()
}

/// Has the program itself verify everything on record in `state`.
pub(crate) fn verify(identity: Identity, state: &Path) -> anyhow::Result<()> {
    let output = identity
        .command(tools::program())?
        .env("XDG_STATE_HOME", state)
        .env("HOME", state)
        .args(["ledger", "verify"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "ledger verify: {said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
