//! The report of a run: the fold over its ledger that `--report` writes and the summary prints.
//!
//! The field names are public. Money follows two rules: an unknown cost makes the sum unknown and
//! never zero, and what may have been spent but was never settled is charged as it was reserved.

mod fold;
mod latency;
mod refusals;
mod shape;
mod spend;
#[cfg(test)]
mod tests;

pub use latency::Latency;
pub use refusals::Refused;
pub use shape::{Alert, RunReport, Tokens};
