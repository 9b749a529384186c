//! The purse: ceilings on turns, tokens, context and money, and what happens at one.
//!
//! Calls in flight count: what a call may come to is held back before it leaves, under one lock,
//! and given back when its provider has said what it used. Wall time is the session's.

mod account;
mod bound;
mod purse;
mod words;

#[cfg(test)]
mod tests;

pub use account::{Spend, Used};
pub use purse::{Budget, KillSwitch};
