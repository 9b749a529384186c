//! The door against real sockets: listeners on loopback stand in for a jail's, upstream servers
//! run in the same process under a throw-away authority, and the ledger says what was decided.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails; the lints know tests by their attribute only"
)]

mod intercept;
mod names;
mod out;
mod tunnels;
mod web;
mod world;
