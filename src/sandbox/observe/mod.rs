//! What is seen at the wall: attempts on the network, openings of decoys, and processes.
//!
//! One thread of the supervisor waits on what the jail handed out: the tap, the watch on the decoys,
//! the system calls that wait for an answer, and the pidfds of its processes. Each family of calls
//! has a module of its own; only `connects` decides anything.

mod connects;
mod decoys;
mod memory;
mod names;
mod observer;
mod processes;
mod procfs;
pub(crate) mod tap;

pub use connects::RefusedConnect;
pub use names::{GuardedTree, Late, Names, RefusedName};
pub use observer::{LastLook, Observation, Observer, Wall};
pub use processes::{
    MissedProcesses, ProcessEnd, ProcessExited, ProcessProgram, ProcessSeen, ProcessStarted,
    StartedBy, WhyMissed,
};
pub use tap::Attempt;
