//! The ledger from outside: what is on disk after writing, crashing, recovering and tampering.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod crash;
mod recovery;
mod state;
mod support;
mod writing;
