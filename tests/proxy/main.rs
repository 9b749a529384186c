//! The door against real sockets: listeners on loopback stand in for a jail's, upstream servers
//! run in the same process under a throw-away authority, and the ledger says what was decided.

mod intercept;
mod names;
mod out;
mod tunnels;
mod web;
mod world;
