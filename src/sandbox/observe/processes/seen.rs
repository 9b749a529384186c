//! What is told of processes.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::path::PathBuf;
use std::time::Instant;

/// Something that happened to a process of the jail.
#[derive(Debug)]
pub enum ProcessSeen {
    Started(ProcessStarted),
    Exited(ProcessExited),
    Missed(MissedProcesses),
}

/// A process, or another program in it.
#[derive(Debug)]
pub struct ProcessStarted {
    /// Counts the processes of the jail from 1. Pids come back, numbers do not.
    pub number: u64,
    /// The parent's number; `None` for children of pid 1.
    pub parent: Option<u64>,
    /// Inside the jail.
    pub pid: u32,
    pub parent_pid: u32,
    pub by: StartedBy,
    pub at: Instant,
}

/// How a process came to be what it is.
#[derive(Debug)]
pub enum StartedBy {
    /// It goes on with its parent's program.
    Fork,
    /// The kernel replaced its program by this one.
    Exec(Box<ProcessProgram>),
}

/// A program that a process runs.
#[derive(Debug)]
pub struct ProcessProgram {
    /// As the jail sees it; `None` when it could not be read.
    pub executable: Option<PathBuf>,
    /// The executable, to be read, and what it was when it began to run.
    pub file: Option<(File, Metadata)>,
    pub args: Vec<OsString>,
    /// The bytes of further arguments that are not in `args`.
    pub omitted: u64,
    /// Where it was started.
    pub cwd: Option<PathBuf>,
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessExited {
    pub number: u64,
    pub pid: u32,
    pub end: ProcessEnd,
    pub at: Instant,
}

/// What the kernel told the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    Exited(u8),
    Signaled(i32),
    /// This kernel does not tell, or the process could not be followed.
    Unknown,
}

/// Something that is not on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissedProcesses {
    /// A process or program.
    Start(WhyMissed),
    /// How a process ended.
    End(WhyMissed),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyMissed {
    /// It asked for a program and was gone before anybody could see whether it ran.
    Unconfirmed,
    /// More were alive at once than are followed.
    TooMany,
    /// `/proc` did not tell what is needed.
    Unreadable,
}
