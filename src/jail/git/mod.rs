//! What git would do with files that an agent can write: read as git reads them, and never by
//! running git.

mod config;
mod judge;
mod todo;

pub use config::{Key, NotAConfig, Variable, parse};
pub use judge::{Change, Effect, changes, effect};
pub use todo::commands;
