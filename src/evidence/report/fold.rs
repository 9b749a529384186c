//! The fold itself: one entry after the other, in the order of the chain.

use std::collections::HashSet;

use jiff::Timestamp;
use kvro_ledger::event::{
    AlertRaised, CallKind, EndedBy, HiddenExposed, InferenceSettled, IsolationDegraded, RunEnded,
    RunStarted, TokenUsage,
};
use kvro_ledger::{Entry, Event};

use crate::processes::{Missed, add_missed};
use crate::report::refusals::Refusals;
use crate::report::spend::{Spend, Trust};
use crate::report::{Alert, Latency, RunReport, Tokens};

/// What the entries up to now amount to.
#[derive(Debug, Default)]
pub(super) struct Fold {
    run: String,
    started: Option<(Timestamp, RunStarted)>,
    ended: Option<(Timestamp, RunEnded)>,
    recovered: bool,
    level: Option<String>,
    degraded: Vec<String>,
    calls: u64,
    turns: u64,
    tokens: Tokens,
    context_tokens: u64,
    spend: Spend,
    durations: Vec<u64>,
    first_bytes: Vec<u64>,
    refusals: Refusals,
    quarantined: Vec<String>,
    processes: HashSet<u64>,
    missed: Vec<Missed>,
    alerts: Vec<Alert>,
}

impl Fold {
    pub(super) fn take(&mut self, entry: &Entry) {
        if self.run.is_empty() {
            self.run = entry.run.to_string();
        }
        let Some(event) = entry.known() else { return };
        self.refusals.take(entry.seq, event);
        match event {
            Event::RunStarted(started) => self.started = Some((entry.time, started.clone())),
            Event::RunEnded(ended) => self.ended = Some((entry.time, ended.clone())),
            Event::IsolationApplied(applied) => self.level = Some(applied.level.clone()),
            Event::IsolationDegraded(IsolationDegraded { layer, .. }) => {
                self.degraded.push(layer.clone());
            }
            Event::InferenceRequested(requested) => {
                self.calls += 1;
                self.spend.reserve(requested.call, requested.reserved_usd);
            }
            Event::InferenceSettled(settled) => self.settle(settled),
            Event::BudgetReserved(reserved) => self.spend.promise(reserved.through_usd),
            Event::AlertRaised(AlertRaised { what, detail }) => {
                self.alerts.push(Alert { what: what.clone(), detail: detail.clone() });
            }
            Event::Quarantined(quarantined) => self.quarantined.push(quarantined.path.clone()),
            Event::LedgerRecovered(_) => self.recovered = true,
            Event::HiddenExposed(HiddenExposed { path }) => {
                let detail = format!("{path} may have been read before it was hidden");
                self.alerts.push(Alert { what: "fs.exposed".to_owned(), detail });
            }
            // One that runs several programs is one.
            Event::ProcessStarted(started) => drop(self.processes.insert(started.process)),
            Event::RecordingMissed(missed) => add_missed(&mut self.missed, missed),
            // Refusals are taken above; the rest says nothing that a report shows.
            Event::HiddenOpened(_)
            | Event::NameRefused(_)
            | Event::DnsAnswered(_)
            | Event::DnsRefused(_)
            | Event::EgressAllowed(_)
            | Event::EgressDenied(_)
            | Event::EgressAttempted(_)
            | Event::EgressClosed(_)
            | Event::DoorOpened(_)
            | Event::DoorFailed(_)
            | Event::UpstreamFailed(_)
            | Event::InferenceRefused(_)
            | Event::InferenceAborted(_)
            | Event::BudgetWarned(_)
            | Event::LimitReached(_)
            | Event::KillRequested(_)
            | Event::KillCompleted(_)
            | Event::ProcessExited(_)
            | Event::Repeated(_) => {}
        }
    }

    fn settle(&mut self, settled: &InferenceSettled) {
        match settled.kind {
            CallKind::Turn => self.turns += 1,
            CallKind::Call => {}
        }
        self.tokens.add(&settled.usage);
        self.context_tokens = self.context_tokens.max(settled.context_tokens);
        self.durations.push(settled.duration_ms);
        self.first_bytes.extend(settled.first_byte_ms);
        self.spend.settle(settled.call, settled.cost_usd);
    }

    pub(super) fn finish(self, ledger: &str) -> RunReport {
        let died = self.recovered && self.ended.is_none();
        let cost_usd = self.spend.total(if died { Trust::Promised } else { Trust::Settled });
        let (started, command) = self.started.map(|(at, run)| (at, run.command)).unzip();
        let (ended, end) = self.ended.unzip();
        let hidden_opens = self.refusals.hidden.iter().map(|opened| opened.count).sum();
        RunReport {
            run: self.run,
            command: command.unwrap_or_default(),
            started,
            ended,
            exit_code: end.as_ref().map(|end| end.exit_code),
            ended_by: end.as_ref().map(|end| end.ended_by).or(died.then_some(EndedBy::Failure)),
            duration_ms: end.as_ref().map(|end| end.duration_ms),
            reason: match end {
                Some(end) => end.reason,
                None if died => "the supervisor died".to_owned(),
                None => String::new(),
            },
            level: self.level,
            degraded: self.degraded,
            ledger: ledger.to_owned(),
            turns: self.turns,
            calls: self.calls,
            tokens: self.tokens,
            context_tokens: self.context_tokens,
            cost_usd,
            latency: Latency::of(self.durations),
            first_byte: Latency::of(self.first_bytes),
            refused: self.refusals.refused,
            hidden_opened: self.refusals.hidden.into_iter().map(|opened| opened.path).collect(),
            hidden_opens,
            quarantined: self.quarantined,
            processes: self.processes.len() as u64,
            missed: self.missed,
            alerts: self.alerts,
        }
    }
}

impl Tokens {
    const fn add(&mut self, usage: &TokenUsage) {
        self.input = self.input.saturating_add(usage.input);
        self.cache_read = self.cache_read.saturating_add(usage.cache_read);
        self.cache_write = self.cache_write.saturating_add(usage.cache_write);
        self.output = self.output.saturating_add(usage.output);
    }
}
