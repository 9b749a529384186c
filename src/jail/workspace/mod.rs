//! What the host has: where the agent works, what is in there that the policy closes, and what of
//! the user's home the agent's tools need. The only part of the policy side that looks at the disk.

mod home;
mod place;
mod program;
mod real;
mod scan;

pub use home::{HomeView, SYSTEM_TREES, Shown, probe};
pub use place::{PlaceError, settle};
pub use scan::{Kind, Match, Matches, ScanError, scan};
