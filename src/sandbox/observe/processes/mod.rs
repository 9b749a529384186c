//! The record of processes: what ran in the jail and how it ended, from the kernel and not from the
//! agent.
//!
//! **What ran.** A process that asks for an exec waits for the supervisor, which notes it and lets
//! it go on: this is telemetry and decides nothing. The exec may still fail, as most of a search of
//! `PATH` do, so nothing that the caller says of it is believed or even read. The program is looked
//! at once the kernel runs it: when its C library or runtime sets the thread pointer, which waits
//! too, or, without one, at the process's next exec, at its exit with an error, or a moment later.
//! Only what then turns out to be a new program is on record. What a process asked for and nobody
//! could look at before it was gone is counted as missed.
//!
//! **How it ended.** A pidfd, opened while the process waits so that it is the right one, tells the
//! status that the kernel gave to the parent (Linux 6.15). Where it cannot, the end is unknown.
//!
//! Forks that run no program of their own are on record when a child of theirs runs one.
//!
//! Why not every exit waits as well: it would show every fork and end every doubt, and it doubles
//! what the record costs a build (seen: 0.3 ms a process where the caches are cold).

mod exits;
mod seen;
mod tracker;

pub use seen::{
    MissedProcesses, ProcessEnd, ProcessExited, ProcessProgram, ProcessSeen, ProcessStarted,
    StartedBy, WhyMissed,
};
pub(super) use tracker::Tracker;
