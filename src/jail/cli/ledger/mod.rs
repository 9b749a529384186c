//! `kvro-jail ledger`: lists, shows, follows and verifies what is on record. It never writes.

mod args;
mod check;
mod line;
mod list;
mod processes;
mod show;
#[cfg(test)]
mod tests;

pub use args::{LedgerArgs, run};
