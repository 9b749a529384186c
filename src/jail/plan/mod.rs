//! From a policy and a machine to the plan of a jail.
//!
//! What the jail shows is a list made here: the system, read-only; a few files of `/etc`; a private
//! home with what the profile names; the workspace. Nothing is left out by exception.

mod certificates;
mod compose;
mod environment;
mod etc;
mod guard;
mod identity;
mod layers;
mod masks;
mod system;
mod trust;

pub use certificates::Bundle;
pub use compose::{Caches, Ingredients, compose};
pub use guard::{ClosedNames, Guarding};
pub use identity::{Person, RootCaller, person};
pub use layers::{LayerError, Layers};
pub use masks::masks;
