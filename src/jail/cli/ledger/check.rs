//! `ledger verify`: what verification found, in words or JSON, and its exit code.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use kvro_ledger::verify::{
    Openness, Outcome, RunVerified, Soundness, Verification, verify_all, verify_run,
};
use kvro_ledger::{RunId, StateDir};
use serde_json::{Map, Value, json};

use crate::report::{harmless, harmless_json};

/// A verification, or why there is nothing to verify.
pub(super) type Checked = anyhow::Result<Verification>;

pub(super) fn one(state: &StateDir, run: &RunId) -> Verification {
    verify_run(state, run)
}

pub(super) fn all(path: &Path) -> Checked {
    let state = StateDir::existing(path).context("there is no ledger to verify")?;
    verify_all(&state).context("the runs cannot be listed")
}

pub(super) fn as_text(checked: Checked, out: &mut dyn Write) -> anyhow::Result<u8> {
    let found = match checked {
        Ok(found) => found,
        Err(error) => {
            writeln!(out, "unreadable: {}", harmless(&format!("{error:#}")))?;
            return Ok(code(Outcome::Unreadable));
        }
    };
    for run in &found.runs {
        let name = &run.run;
        match &run.soundness {
            Soundness::Intact => writeln!(out, "{name}  intact, {} entries", run.entries)?,
            Soundness::Broken(at) => writeln!(out, "{name}  BROKEN at {at}")?,
            Soundness::Unreadable(error) => writeln!(out, "{name}  unreadable: {}", chain(error))?,
        }
        if let Some(caveat) = caveat(run) {
            writeln!(out, "{:name$}  {caveat}", "", name = name.as_str().len())?;
        }
    }
    match &found.index {
        Soundness::Intact => {}
        Soundness::Broken(at) => writeln!(out, "index of runs  BROKEN at {at}")?,
        Soundness::Unreadable(error) => {
            writeln!(out, "index of runs  unreadable: {}", chain(error))?;
        }
    }
    let runs = match found.runs.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    writeln!(out, "{}: {runs} and the index verified", word(found.outcome()))?;
    Ok(code(found.outcome()))
}

pub(super) fn as_json(checked: Checked, out: &mut dyn Write) -> anyhow::Result<u8> {
    let (json, outcome) = match checked {
        Err(error) => {
            let outcome = Outcome::Unreadable;
            (json!({"outcome": word(outcome), "message": format!("{error:#}")}), outcome)
        }
        Ok(found) => {
            let runs: Vec<Value> = found.runs.iter().map(run_json).collect();
            let outcome = found.outcome();
            let index = Value::Object(soundness_json(&found.index));
            (json!({"outcome": word(outcome), "index": index, "runs": runs}), outcome)
        }
    };
    writeln!(out, "{}", harmless_json(&json.to_string()))?;
    Ok(code(outcome))
}

fn run_json(run: &RunVerified) -> Value {
    let mut json = soundness_json(&run.soundness);
    json.insert("run".to_owned(), json!(run.run));
    json.insert("entries".to_owned(), json!(run.entries));
    json.insert("state".to_owned(), json!(state(run.openness)));
    if let Some(caveat) = caveat(run) {
        json.insert("caveat".to_owned(), json!(caveat));
    }
    Value::Object(json)
}

fn soundness_json<E: Error>(soundness: &Soundness<E>) -> Map<String, Value> {
    let outcome = match soundness {
        Soundness::Intact => Outcome::Intact,
        Soundness::Broken(_) => Outcome::Broken,
        Soundness::Unreadable(_) => Outcome::Unreadable,
    };
    let mut json = Map::new();
    json.insert("outcome".to_owned(), json!(word(outcome)));
    match soundness {
        Soundness::Intact => {}
        Soundness::Broken(at) => {
            json.insert("seq".to_owned(), json!(at.seq));
            json.insert("reason".to_owned(), json!(at.reason.code()));
            json.insert("message".to_owned(), json!(at.to_string()));
        }
        Soundness::Unreadable(error) => {
            json.insert("message".to_owned(), json!(chain(error)));
        }
    }
    json
}

/// What could not be found, so that nobody takes silence for proof.
fn caveat(run: &RunVerified) -> Option<&'static str> {
    let is_intact = matches!(run.soundness, Soundness::Intact);
    match run.openness {
        Openness::Live if is_intact => {
            Some("it is still written: entries cut from its end would not be noticed")
        }
        Openness::Abandoned if is_intact => Some(
            "its supervisor died: entries cut from its end would not be noticed; the next run closes it",
        ),
        Openness::Closed | Openness::Live | Openness::Abandoned => None,
    }
}

const fn state(openness: Openness) -> &'static str {
    match openness {
        Openness::Closed => "closed",
        Openness::Live => "live",
        Openness::Abandoned => "abandoned",
    }
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Intact => "intact",
        Outcome::Broken => "broken",
        Outcome::Unreadable => "unreadable",
    }
}

const fn code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Intact => 0,
        Outcome::Broken => 1,
        Outcome::Unreadable => 2,
    }
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    harmless(&text).into_owned()
}
