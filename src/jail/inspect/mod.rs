//! What a run left behind: compared, when nothing of it is alive, with what was there at launch.
//!
//! What stands at a name that the policy closes, and was not there, goes to quarantine. What
//! others might run later without knowing is told. Where the supervisor died, the next one does
//! it, from the record that was made durable before the agent ran.

mod compare;
mod copy;
mod exit;
mod findings;
mod identity;
mod launch;
mod moves;
mod quarantine;
mod reopen;
mod settings;

#[cfg(test)]
mod tests;

pub use exit::{Keep, Left, forget, inspect, inspect_dead};
pub use identity::{Identity, Process, Raw};
pub use launch::{Before, Launch, RecordError};
