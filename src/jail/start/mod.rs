//! From a loaded policy to a finished run.

mod door;
mod dry_run;
mod jail;
mod kit;
mod say;
mod secrets;
mod story;

pub use dry_run::dry_run;
pub use kit::Kit;
pub use say::Say;
pub use story::{Desk, Request, STATE_HINT, run};
