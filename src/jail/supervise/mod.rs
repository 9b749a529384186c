//! A run while it lives: one loop owns its state, everyone else sends it messages.

mod control;
mod ending;
mod outcome;
mod processes;
mod session;
mod signals;
mod terminal;

pub use control::{Answer, ControlError, Request, Status, ask};
pub use ending::{Cause, EndRequests};
pub use outcome::Outcome;
pub use session::{Lived, Session, live};
pub use terminal::{Streams, streams};
