//! The record of processes: what ran in the jail and how it ended, from the kernel and not from the
//! agent.
//!
//! **What ran.** A process that asks for an exec, begins a program, or is about to exit waits for
//! the supervisor, which looks at it and always lets it go on: this is telemetry and decides
//! nothing. An exec that is asked for may still fail, as most of a search of `PATH` do, so nothing
//! that the caller says of it is believed or even read. The program is looked at once the kernel
//! runs it: as its C library starts (`set_tid_address`), or, without one, at the process's next
//! call that waits or a moment later. Only what then turns out to be a new program is on record. A
//! process that is killed before anybody could look is counted as missed.
//!
//! **How it ended.** A pidfd, opened while the process waits so that it is the right one, tells the
//! status that the kernel gave to the parent (Linux 6.15). Where it cannot, the end is unknown.
//!
//! Forks that run no program of their own are found at their exit, or when a child of theirs runs
//! one. A fork that was killed before that is not on record.

mod exits;
mod seen;
mod tracker;

pub use seen::{
    MissedProcesses, ProcessEnd, ProcessExited, ProcessSeen, ProcessStarted, StartedBy, WhyMissed,
};
pub(super) use tracker::Tracker;
