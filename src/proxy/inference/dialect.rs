//! What one billable operation of a provider needs to be metered: facts and two readers.

use std::fmt;

use http::StatusCode;
use kvro_ledger::event::CallKind;
use serde_json::Value;

use super::denial::Denial;
use super::members::{Malformed, Members};
use super::tally::Tally;
use crate::gate::{AskedTerms, InputBound, OutputAsk};

/// One operation's habits.
pub(crate) struct Dialect {
    /// OpenTelemetry's name of the operation.
    pub(crate) operation: &'static str,
    /// What a call counts as.
    pub(crate) kind: CallKind,
    /// How a ceiling is worded, where that differs from the provider's other errors.
    pub(crate) ceiling: fn(&Denial) -> (StatusCode, Value),
    /// Reads what a request may come to.
    pub(crate) inspect: fn(&Members<'_>) -> Result<Inspection, Malformed>,
    /// Reads the data of one event of a stream.
    pub(crate) read_event: fn(&mut Tally, &[u8]),
    /// Reads a whole JSON answer.
    pub(crate) read_answer: fn(&mut Tally, &[u8]),
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    pub(crate) model: String,
    pub(crate) input: InputBound,
    pub(crate) output: OutputAsk,
    pub(crate) terms: AskedTerms,
    pub(crate) context_at_least: u64,
    /// The member that limits the output, and the one that it is in.
    pub(crate) limit_field: &'static [&'static str],
    pub(crate) usage: UsageAsk,
}

/// Whether the request must be made to ask for usage, and the answer be freed of it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageAsk {
    AsIs,
    Inject,
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialect").field("operation", &self.operation).finish_non_exhaustive()
    }
}

/// Dialects are constants: the readers tell them apart.
impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Dialect {}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
