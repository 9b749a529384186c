//! The tamper-evident record of a run: what crossed the wall, or tried to.
//!
//! This crate knows the event vocabulary, the hash chain, the one writer and the verifier. It
//! deliberately knows nothing of what the events mean for a run: reports are folds made elsewhere.

pub mod chain;
mod clock;
mod entry;
pub mod event;
mod index;
mod ledger;
mod memory;
mod promise;
pub mod read;
mod receipt;
mod recorder;
pub mod recover;
mod redact;
mod repeat;
mod room;
pub mod state;
pub mod units;
pub mod verify;
mod writer;

pub use chain::{Head, LineHash};
pub use clock::Clock;
pub use entry::{Entry, Recorded};
pub use event::{Actor, Event};
pub use index::IndexError;
pub use ledger::{CloseError, Ledger, OpenError};
pub use memory::MemoryLedger;
pub use receipt::Receipt;
pub use recorder::{RecordError, Recorder};
pub use recover::{recover, recover_with};
pub use redact::{RedactionError, Redactions};
pub use state::StateDir;
pub use units::{PicoUsd, RunId};
