//! Which servers may be reached: names, rules as typed, decisions and their reasons.

mod judge;
mod name;
mod pattern;
mod reason;

pub use judge::{Decision, Rules};
pub(crate) use name::split_port;
pub use name::{NameError, Server, ServerError, ServerName};
pub use pattern::{HostPattern, PatternError};
pub use reason::Reason;

#[cfg(test)]
mod tests;
