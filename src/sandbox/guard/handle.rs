//! The supervisor's end of the guard.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;

use super::wire::{About, At, FromGuard, Standing, ToGuard};
use crate::wire::{Channel, LONG};

/// The guard's process, to be asked. Dropping it ends the process and waits for that.
#[derive(Debug)]
pub struct GuardHandle {
    process: Child,
    channel: Channel,
    /// Appeared while an answer was waited for.
    appeared: VecDeque<Appeared>,
    unwatched: Option<Unwatched>,
}

/// How what appeared is to be shown: see [`ToGuard::Show`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) at: At,
    pub(crate) standing: Standing,
    pub(crate) views: Vec<PathBuf>,
}

/// The directory from which on a tree is not watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unwatched {
    pub(crate) tree: usize,
    pub(crate) dir: PathBuf,
}

/// Something on the host that waits for a judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Appeared {
    pub(crate) tree: usize,
    pub(crate) at: At,
    pub(crate) is_dir: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Opened(OwnedFd),
    IsThere,
    Failed(i32),
}

impl GuardHandle {
    pub(crate) fn new(process: Child, channel: Channel) -> Self {
        Self { process, channel, appeared: VecDeque::new(), unwatched: None }
    }

    /// Asks and waits. An error means that the guard is gone.
    pub(crate) fn ask(
        &mut self,
        request: &About<ToGuard>,
        content: Option<BorrowedFd<'_>>,
    ) -> io::Result<Answer> {
        self.channel.send(request, content.as_slice())?;
        loop {
            let received = self.channel.receive()?;
            if let Some(answer) = self.take(received)? {
                return Ok(answer);
            }
        }
    }

    /// Takes in what the guard tells; what it answers comes back.
    fn take(
        &mut self,
        received: Option<(About<FromGuard>, Vec<OwnedFd>)>,
    ) -> io::Result<Option<Answer>> {
        let Some((About { tree, message }, mut fds)) = received else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(match message {
            FromGuard::Done => Some(Answer::Done),
            FromGuard::Opened => Some(Answer::Opened(fds.pop().ok_or(io::ErrorKind::InvalidData)?)),
            FromGuard::IsThere => Some(Answer::IsThere),
            FromGuard::Failed { errno } => Some(Answer::Failed(errno)),
            FromGuard::Appeared { at, is_dir } => {
                self.appeared.push_back(Appeared { tree, at, is_dir });
                None
            }
            FromGuard::Unwatched { dir } => {
                self.unwatched = Some(Unwatched { tree, dir });
                None
            }
        })
    }

    /// What appeared on the host since the last call.
    pub(crate) fn appeared(&mut self) -> io::Result<Vec<Appeared>> {
        loop {
            match self.channel.try_receive() {
                Ok(received) => {
                    if self.take(received)?.is_some() {
                        // Nothing was asked.
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.appeared.drain(..).collect());
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// The directory from which on nothing is watched, told once.
    pub(crate) fn unwatched(&mut self) -> Option<Unwatched> {
        self.unwatched.take()
    }

    /// Whether something appeared that [`Self::appeared`] has not told yet.
    pub(crate) fn has_appeared(&self) -> bool {
        !self.appeared.is_empty()
    }

    /// Answers what appeared; nothing comes back.
    ///
    /// Outer directories come before inner ones, so that each piece of many stands by itself: what
    /// the next one will guard is not shown before it was asked for.
    pub(crate) fn show(&self, tree: usize, shown: Shown) -> io::Result<()> {
        let Shown { at, standing, views } = shown;
        let mut views = views.into_iter().peekable();
        loop {
            let (mut piece, mut bytes) = (Vec::new(), 0);
            while bytes < LONG
                && let Some(view) = views.next()
            {
                bytes += view.as_os_str().len();
                piece.push(view);
            }
            let message = ToGuard::Show { at: at.clone(), standing, views: piece };
            self.channel.send(&About { tree, message }, &[])?;
            if views.peek().is_none() {
                return Ok(());
            }
        }
    }
}

impl AsFd for GuardHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for GuardHandle {
    fn drop(&mut self) {
        // Its end of file; a guard that is gone already needs none.
        drop(self.channel.finish_sending());
        drop(self.process.wait());
    }
}
