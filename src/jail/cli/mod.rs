//! The subcommands, one file each: arguments, and what they print.

mod args;
pub mod doctor;
pub mod explain;
pub mod kill;
pub mod ledger;
pub mod policy;
pub mod profile;
mod program;
pub mod ps;
mod repair;
mod run;
mod selection;

pub use args::{Cli, LimitWord, RunArgs, Subcommands};
pub use program::main;
pub use selection::Selection;
