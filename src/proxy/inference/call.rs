//! One admitted call from its permit to its settlement, and what is recorded on the way.
//!
//! Whatever happens to the future or the body that holds a call, the call is settled once.

use std::time::{Duration, Instant};

use kvro_ledger::event::{InferenceAborted, InferenceSettled};
use kvro_ledger::{Actor, Event, Recorder};

use super::tally::{Extent, Tally};
use crate::gate::{Outcome, Permit, Usage};

/// A call that has left for its provider.
#[derive(Debug)]
pub(crate) struct Call {
    /// Taken by the settlement.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    permit: Permit,
    recorder: Recorder,
    arrived: Instant,
    first_byte: Option<Duration>,
    status: u16,
}

impl Call {
    pub(crate) fn new(number: u64, permit: Permit, recorder: Recorder, arrived: Instant) -> Self {
        let open = Open { number, permit, recorder, arrived, first_byte: None, status: 0 };
        Self { open: Some(open) }
    }

    pub(crate) fn answered(&mut self, status: u16) {
        if let Some(open) = &mut self.open {
            open.status = status;
        }
    }

    /// A byte of the answer's body is here.
    pub(crate) fn arrived(&mut self) {
        if let Some(open) = &mut self.open {
            open.first_byte.get_or_insert_with(|| open.arrived.elapsed());
        }
    }

    /// Whether the provider took the call.
    pub(crate) fn is_accepted(&self) -> bool {
        self.open.as_ref().is_some_and(|open| (200..300).contains(&open.status))
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The answer is over: pays for the call by what it said.
    pub(crate) fn settle(&mut self, tally: &Tally) {
        let outcome = self.outcome(tally);
        self.close(outcome);
    }

    /// Nothing was sent, or the provider cannot have taken it.
    pub(crate) fn reject(&mut self) {
        self.close(Outcome::Rejected);
    }

    /// The answer did not arrive whole.
    pub(crate) fn abort(&mut self, reason: &str, tally: &Tally) {
        let outcome = self.outcome(tally);
        if let Some(open) = &self.open {
            let aborted = InferenceAborted { call: open.number, reason: reason.to_owned() };
            open.recorder.record(Actor::Meter, Event::InferenceAborted(aborted));
        }
        self.close(outcome);
    }

    fn outcome(&self, tally: &Tally) -> Outcome {
        let usage = tally.usage.clone();
        match (self.is_accepted(), tally.extent()) {
            (true, Extent::Whole) => Outcome::Reported(usage),
            (true, Extent::Input) => Outcome::Partial(usage),
            (true, Extent::Nothing) => Outcome::Unknown,
            (false, Extent::Whole | Extent::Input) => Outcome::RejectedAt(usage),
            // Without a status the call may have been taken.
            (false, Extent::Nothing) => match self.open.as_ref().map(|open| open.status) {
                Some(0) => Outcome::Unknown,
                _ => Outcome::Rejected,
            },
        }
    }

    fn close(&mut self, outcome: Outcome) {
        let Some(open) = self.open.take() else { return };
        let asked = open.permit.reservation().model.clone();
        let settlement = open.permit.settle(&outcome);
        let usage = match outcome {
            Outcome::Rejected | Outcome::Unknown => Usage::default(),
            Outcome::Reported(usage) | Outcome::RejectedAt(usage) | Outcome::Partial(usage) => {
                usage
            }
        };
        let settled = InferenceSettled {
            call: open.number,
            usage: usage.total(),
            context_tokens: usage.context_tokens,
            model: usage.model.unwrap_or(asked),
            kind: settlement.kind,
            status: open.status,
            cost_usd: settlement.cost,
            basis: settlement.basis,
            duration_ms: milliseconds(open.arrived.elapsed()),
            first_byte_ms: open.first_byte.map(milliseconds),
        };
        open.recorder.record(Actor::Meter, Event::InferenceSettled(settled));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_open() {
            self.abort("agent_left", &Tally::default());
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
