//! The jail's root: made from the plan's mounts in one pass, then entered.
//!
//! Every source is opened as a detached tree before anything is attached, so that no mount can
//! change what a later path means. A tree is made read-only while it is detached: it is never
//! visible in a weaker form.

mod build;
mod devices;
mod mask;
mod prepared;
mod proc;
mod root;
mod view;

pub(crate) use build::{attributes, build, detach_from_host};
pub(crate) use prepared::{Prepared, sources};
