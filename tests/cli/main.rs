//! The program as a person meets it: its words, its exit codes, its streams, its terminal, and what
//! it leaves behind. Everything runs the real binary in a home made for one test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../support/census.rs"]
mod census;
#[path = "../support/stub/mod.rs"]
mod stub;

mod codes;
mod endings;
mod hostile;
mod inspect;
mod leftovers;
mod mistakes;
mod person;
mod planted;
mod processes;
mod quarantine;
mod resolvers;
mod secrets;
mod signals;
mod streams;
mod terminal;
mod words;
mod world;
