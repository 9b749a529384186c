//! Signals to the supervisor, as a stream.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the supervisor listens for.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
    user_1: Signal,
    user_2: Signal,
    stop: Signal,
    window: Signal,
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

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
            stop: signal(SignalKind::from_raw(SIGTSTP))?,
            window: signal(SignalKind::window_change())?,
        })
    }

    pub(super) async fn next(&mut self) -> Arrived {
        tokio::select! {
            _ = self.interrupt.recv() => Arrived::ForGroup(SIGINT),
            _ = self.quit.recv() => Arrived::ForGroup(SIGQUIT),
            _ = self.terminate.recv() => Arrived::ForCommand(SIGTERM),
            _ = self.hangup.recv() => Arrived::ForCommand(SIGHUP),
            _ = self.user_1.recv() => Arrived::ForCommand(SIGUSR1),
            _ = self.user_2.recv() => Arrived::ForCommand(SIGUSR2),
            _ = self.stop.recv() => Arrived::Stop,
            _ = self.window.recv() => Arrived::Resized,
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
