//! The jail's terminal, and the caller's terminal while it is relayed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

impl WindowSize {
    /// The size of `terminal`.
    pub fn of(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        let (rows, columns) = sys::window_size(terminal)?;
        Ok(Self { rows, columns })
    }

    /// Gives `terminal` this size; its foreground group is told.
    pub fn apply(self, terminal: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_window_size(terminal, (self.rows, self.columns))
    }
}

/// Both sides of a new terminal in the jail's own `/dev/pts`.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    pub(crate) program: OwnedFd,
}

impl Terminal {
    /// Makes a terminal of the `/dev/pts` that this process sees.
    pub(crate) fn open(size: WindowSize) -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = open("/dev/pts/ptmx", flags, Mode::empty())?;
        sys::unlock_terminal(master.as_fd())?;
        let program = sys::terminal_peer(master.as_fd())?;
        size.apply(master.as_fd())?;
        Ok(Self { master, program })
    }
}

/// The caller's terminal in raw mode, for as long as this lives: keys go to the jail as bytes.
#[derive(Debug)]
pub struct RawMode {
    terminal: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// Puts `terminal` into raw mode.
    pub fn enter(terminal: OwnedFd) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mode = Self { terminal, before };
        mode.resume()?;
        Ok(mode)
    }

    /// Back to raw mode after [`RawMode::suspend`].
    pub fn resume(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&self.terminal, SetArg::TCSADRAIN, &raw)?;
        Ok(())
    }

    /// As the terminal was found, while the caller's shell has it.
    pub fn suspend(&self) -> io::Result<()> {
        tcsetattr(&self.terminal, SetArg::TCSADRAIN, &self.before)?;
        Ok(())
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored, and nobody looks at it.
        drop(self.suspend());
    }
}
