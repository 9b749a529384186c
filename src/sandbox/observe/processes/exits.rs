//! Pidfds of the processes that are followed, and what they tell at the end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::seen::ProcessEnd;
use crate::sys;

/// So many ends are taken in at a time.
pub(super) const AT_ONCE: usize = 64;

/// Where the ends of processes are told.
#[derive(Debug)]
pub(super) struct Exits {
    epoll: Epoll,
    kernel: Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// Tells when a process is collected, and with what status.
    Tells,
    /// Tells that a process is dead and no more.
    Silent,
}

/// How far a process is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Dead, and not collected by its parent.
    Zombie,
    /// Nothing more will be told.
    Entirely,
}

impl Exits {
    pub(super) fn new() -> io::Result<Self> {
        let own = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let kernel = match sys::wait_status(sys::open_pidfd(own)?.as_fd()) {
            Ok(_) => Kernel::Tells,
            // Before Linux 6.13 there is no such request; nor does a pidfd hang up when its process
            // is collected.
            Err(_) => Kernel::Silent,
        };
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, kernel })
    }

    /// Follows the process of `pidfd` to its end.
    pub(super) fn follow(&self, pidfd: &OwnedFd, process: u32) -> io::Result<()> {
        let on = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        Ok(self.epoll.add(pidfd, EpollEvent::new(on, process.into()))?)
    }

    /// The processes that came closer to their end since the last call, at most [`AT_ONCE`].
    pub(super) fn next(&self) -> io::Result<Vec<(u32, Gone)>> {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let count = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => 0,
            waited => waited?,
        };
        let gone = events.iter().take(count).map(|event| {
            let is_collected = event.events().contains(EpollFlags::EPOLLHUP);
            let is_last = is_collected || self.kernel == Kernel::Silent;
            let gone = if is_last { Gone::Entirely } else { Gone::Zombie };
            // Only process ids were put in.
            (u32::try_from(event.data()).unwrap_or_default(), gone)
        });
        Ok(gone.collect())
    }

    /// How the process of `pidfd` ended, which is gone entirely.
    pub(super) fn end(pidfd: BorrowedFd<'_>) -> ProcessEnd {
        match sys::wait_status(pidfd) {
            Ok(Some(status)) => parse(status),
            Ok(None) | Err(_) => ProcessEnd::Unknown,
        }
    }
}

impl AsFd for Exits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Reads a wait status (wait(2)) of a process that is dead.
fn parse(status: i32) -> ProcessEnd {
    if libc::WIFEXITED(status) {
        u8::try_from(libc::WEXITSTATUS(status)).map_or(ProcessEnd::Unknown, ProcessEnd::Exited)
    } else if libc::WIFSIGNALED(status) {
        ProcessEnd::Signaled(libc::WTERMSIG(status))
    } else {
        ProcessEnd::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_wait_reads_it() {
        assert_eq!(parse(0), ProcessEnd::Exited(0));
        assert_eq!(parse(0xff00), ProcessEnd::Exited(255));
        assert_eq!(parse(9), ProcessEnd::Signaled(9));
        // With a core dump.
        assert_eq!(parse(11 | 0x80), ProcessEnd::Signaled(11));
        assert_eq!(parse(0x137f), ProcessEnd::Unknown);
    }
}
