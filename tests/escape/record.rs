//! What a run left on record, read from outside.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::identity::Identity;
use crate::tools;

/// The runs that the index in the state directory `state` says were opened, oldest first: their
/// names alone do not order those of one second.
pub(crate) fn runs(state: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let directory = state.join("kvro-jail");
    let index = match fs::read_to_string(directory.join("index.jsonl")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        index => index.with_context(|| format!("no index in {}", directory.display()))?,
    };
    // The last line may be torn; it is the program's to mend.
    let entries = index.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let opened = entries.filter(|entry| entry["event"] == "run.opened");
    let run = |entry: Value| Some(directory.join("runs").join(entry["run"].as_str()?));
    Ok(opened.filter_map(run).collect())
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
    ensure!(
        output.status.success(),
        "ledger verify: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
