//! The tamper-evident record of a run: what crossed the wall, or tried to.
//!
//! This crate knows the event vocabulary, the hash chain, the one writer and the verifier. It
//! deliberately knows nothing of what the events mean for a run: reports are folds made elsewhere.

pub mod event;
mod units;

pub use event::{Actor, Event};
pub use units::{PicoUsd, RunId};
