//! Lives: prisoners that run until somebody ends them, to see whether somebody can.
//!
//! Each makes the file `ready` in its working directory when it is what its name says.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::unistd::setsid;

use super::number;
use crate::raw::{self, Side};

/// What a prisoner makes when it is set up.
pub(crate) const READY: &str = "ready";
/// What lets a prisoner end that waits for it.
pub(crate) const GO: &str = "go";

const LIVES: [&str; 5] = ["wait", "stubborn", "leave-orphans", "hold-streams", "storm"];

pub(super) fn is_life(name: &str) -> bool {
    LIVES.contains(&name)
}

pub(super) fn live(name: &str, args: &[String]) -> ExitCode {
    let count = args.first().map_or(Ok(1), |word| number(word));
    let lived = match (name, count) {
        ("wait", _) => ready().map(|()| wait_for_ever()),
        ("stubborn", Ok(count)) => stubborn(count),
        ("leave-orphans", Ok(count)) => leave_orphans(count),
        ("hold-streams", _) => hold_streams(),
        ("storm", Ok(count)) => storm(count),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    lived.unwrap_or(ExitCode::FAILURE)
}

fn ready() -> io::Result<()> {
    fs::write(READY, "")
}

fn wait_for_ever() -> ! {
    loop {
        nix::unistd::pause();
    }
}

/// `count` processes that ignore every signal they can; some are stopped, some are being traced.
fn stubborn(count: u32) -> io::Result<ExitCode> {
    ignore_signals()?;
    for number in 1..count {
        if let Side::Child = raw::fork()? {
            let stops = match number % 8 {
                1 => raise(Signal::SIGSTOP),
                2 => ptrace::traceme().and_then(|()| raise(Signal::SIGSTOP)),
                _ => Ok(()),
            };
            stops.ok();
            wait_for_ever();
        }
    }
    ready()?;
    wait_for_ever()
}

fn ignore_signals() -> io::Result<()> {
    for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
        raw::ignore(ignored)?;
    }
    Ok(())
}

/// Leaves `count` processes, each in a session of its own and a stranger to this one.
fn leave_orphans(count: u32) -> io::Result<ExitCode> {
    for _ in 0..count {
        if let Side::Child = raw::fork()? {
            let left = setsid().map_err(io::Error::from).and_then(|_| raw::fork());
            match left {
                Ok(Side::Child) => wait_for_ever(),
                Ok(Side::Parent { .. }) | Err(_) => raw::exit_now(0),
            }
        }
    }
    ready()?;
    while !Path::new(GO).exists() {
        thread::park_timeout(Duration::from_millis(5));
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends with 3 while a child of a session of its own still has the three streams.
fn hold_streams() -> io::Result<ExitCode> {
    match raw::fork()? {
        Side::Child => {
            setsid().ok();
            wait_for_ever()
        }
        Side::Parent { .. } => Ok(ExitCode::from(3)),
    }
}

/// `count` chains of processes: each lives for a moment, in a session of its own, and forks on.
fn storm(count: u32) -> io::Result<ExitCode> {
    ignore_signals()?;
    for _ in 0..count {
        if let Side::Child = raw::fork()? {
            fork_on();
        }
    }
    ready()?;
    wait_for_ever()
}

fn fork_on() -> ! {
    loop {
        setsid().ok();
        // Hundreds of new lives a second, and no more dead than pid 1 can bury.
        thread::park_timeout(Duration::from_millis(250));
        if let Ok(Side::Parent { .. }) = raw::fork() {
            raw::exit_now(0);
        }
    }
}
