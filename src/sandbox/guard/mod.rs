//! The guard: names that hold for the whole session.
//!
//! Guarded directories show the view (see [`tree`]), which the agent cannot write. What it makes,
//! removes and renames there waits for the supervisor (seccomp notification), which judges the name
//! and asks the guard: a process in the jail's user and mount namespaces, outside of its pid
//! namespace, that does it on the real tree with the agent's own rights and brings the view in
//! line. What the host changes it learns from inotify, and asks the supervisor before it shows it.
//!
//! Nothing is decided here. A guard that dies leaves a view that stays as it is.

// Defence::Guard: guard::nothing_hidden_is_read_in_a_race_with_the_host.
mod far;
mod follow;
mod handle;
mod held;
mod host;
mod perform;
mod process;
mod secrets;
mod serve;
mod tree;
mod wire;

pub use handle::GuardHandle;
pub(crate) use handle::{Answer, Appeared, Shown, Unwatched};
pub(crate) use serve::{Guards, enter};
pub(crate) use tree::Tree;
pub use wire::Standing;
pub(crate) use wire::{About, At, Making, ToGuard};
