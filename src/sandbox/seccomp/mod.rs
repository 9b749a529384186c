//! System calls that the agent does not get, as data with a reason for each.
//!
//! Everything else is allowed: the agent runs whatever a developer runs. What is refused is what
//! reaches kernel code that no build or test needs, what would make namespaces that the other
//! layers do not know, and every call that a later kernel adds.

mod bpf;
mod filter;
mod notify;
mod table;

pub(crate) use filter::install;
pub(crate) use notify::{Family, Names};
pub use table::{RefusedCall, refused_calls};
