//! Verification: whether what a ledger says now is what was written.
//!
//! It reads, and never writes. What it can find: any byte changed, any line removed, added or
//! moved in a ledger whose chain goes on behind it; any cut or changed end of a closed run, by
//! the index; any cut or changed end of the index, by its promise. What it cannot find: entries
//! cut from the very end of a run that was never closed, and a rewrite of ledger, index and
//! promise together by somebody who owns them all.

mod book;
mod check;
mod finding;
#[cfg(test)]
mod tests;
mod walk;

pub use check::{verify_all, verify_run};
pub use finding::{Break, Openness, Outcome, Reason, RunVerified, Soundness, Verification};
