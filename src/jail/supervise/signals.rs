//! Signals to the supervisor, as a stream.
//!
//! What the caller has us ignore stays ignored, here and inside: nohup(1) says so of a hangup, and
//! a shell of the keys that are not for its background jobs.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the supervisor listens for.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Heard,
    quit: Heard,
    terminate: Heard,
    hangup: Heard,
    user_1: Heard,
    user_2: Heard,
    stop: Heard,
    window: Heard,
}

/// A signal that is listened for, unless it is to be ignored.
#[derive(Debug)]
struct Heard(Option<Signal>);

impl Heard {
    fn new(number: i32, ignored: Ignored) -> io::Result<Self> {
        let heard = (!ignored.has(number)).then(|| signal(SignalKind::from_raw(number)));
        heard.transpose().map(Self)
    }

    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

/// The signals that this process ignores, as proc_pid_status(5) shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ignored(u64);

impl Ignored {
    fn by_this_process() -> io::Result<Self> {
        Ok(Self::read(&std::fs::read_to_string("/proc/thread-self/status")?))
    }

    fn read(status: &str) -> Self {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    fn has(self, number: i32) -> bool {
        let bit = u32::try_from(number - 1).ok().and_then(|place| 1_u64.checked_shl(place));
        bit.is_some_and(|bit| self.0 & bit != 0)
    }
}

/// A signal and whom it was meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrived {
    /// What a key on a terminal sends to a whole group.
    ForGroup(i32),
    /// What somebody sends to one process.
    ForCommand(i32),
    /// The terminal's stop key.
    Stop,
    /// The terminal has another size.
    Resized,
}

const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGHUP: i32 = 1;
const SIGTERM: i32 = 15;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGTSTP: i32 = 20;
const SIGWINCH: i32 = 28;

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = Ignored::by_this_process()?;
        let heard = |number| Heard::new(number, ignored);
        Ok(Self {
            interrupt: heard(SIGINT)?,
            quit: heard(SIGQUIT)?,
            terminate: heard(SIGTERM)?,
            hangup: heard(SIGHUP)?,
            user_1: heard(SIGUSR1)?,
            user_2: heard(SIGUSR2)?,
            stop: heard(SIGTSTP)?,
            window: heard(SIGWINCH)?,
        })
    }

    pub(super) async fn next(&mut self) -> Arrived {
        tokio::select! {
            () = self.interrupt.recv() => Arrived::ForGroup(SIGINT),
            () = self.quit.recv() => Arrived::ForGroup(SIGQUIT),
            () = self.terminate.recv() => Arrived::ForCommand(SIGTERM),
            () = self.hangup.recv() => Arrived::ForCommand(SIGHUP),
            () = self.user_1.recv() => Arrived::ForCommand(SIGUSR1),
            () = self.user_2.recv() => Arrived::ForCommand(SIGUSR2),
            () = self.stop.recv() => Arrived::Stop,
            () = self.window.recv() => Arrived::Resized,
        }
    }
}

/// What a signal to the supervisor asks for, beside being handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    None,
    End,
    /// The terminal is gone, and nobody will ask again.
    EndSoon,
}

pub(super) fn wish(signal: i32) -> Wish {
    match signal {
        SIGTERM => Wish::End,
        SIGHUP => Wish::EndSoon,
        _ => Wish::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_counts_signals_from_one() {
        let ignored =
            Ignored::read("Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n");
        let all = [SIGHUP, SIGINT, SIGQUIT, 13, SIGTERM, 64, 0, 65];
        let expected = [true, false, false, true, false, false, false, false];
        assert_eq!(all.map(|number| ignored.has(number)), expected);
        assert_eq!(Ignored::read("no such line"), Ignored(0));
    }
}
