//! Serves what the jail opens: reads a name off each connection, judges it, carries it.

mod agent;
mod connection;
mod destination;
mod door;
mod intercept;
mod passage;
mod refusal;
mod request;
mod sniff;
mod tunnel;
mod web;

pub use door::{Door, DoorError, Listeners};
