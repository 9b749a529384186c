//! The threads that watch.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;

use super::connects::{self, RefusedConnect};
use super::decoys::DecoyWatch;
use super::tap::{self, Attempt};
use crate::plan::{Mask, MaskKind};
use crate::sys::Notifier;

/// Something that was seen at the wall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// The decoy of this place in the plan's masks was opened.
    DecoyOpened(usize),
    /// A packet went where the door does not listen.
    Attempted(Attempt),
    /// A `connect` was refused.
    ConnectRefused(RefusedConnect),
    /// A watch broke; the jail must not go on unobserved.
    Failed(&'static str),
}

/// Watches for as long as it lives.
#[derive(Debug)]
pub struct Observer {
    threads: Vec<JoinHandle<()>>,
    /// Closing it ends the first thread.
    stop: Option<OwnedFd>,
}

impl Observer {
    /// Watches the tap and the decoys of `masks` in the directory `decoys`; every watch is in place
    /// when this returns. `see` is called on the watching thread.
    pub fn start(
        tap: OwnedFd,
        decoys: Option<&OwnedFd>,
        masks: &[Mask],
        see: impl Fn(Observation) + Send + 'static,
    ) -> io::Result<Self> {
        let hidden = masks.iter().enumerate().filter_map(|(place, mask)| match mask.kind {
            MaskKind::Hidden { .. } => Some(place),
            MaskKind::Protected => None,
        });
        let decoys = decoys.map(|dir| DecoyWatch::new(dir.as_fd(), hidden)).transpose()?;
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let watch = move || {
            if watch(&tap, decoys.as_ref(), &stopped, &see).is_err() {
                see(Observation::Failed("the watch on the tap and the decoys broke"));
            }
        };
        let thread = thread::Builder::new().name("observe".to_owned()).spawn(watch)?;
        Ok(Self { threads: vec![thread], stop: Some(stop) })
    }

    /// Judges the `connect` calls that arrive on `listener`, until nobody is left to ask.
    pub fn judge(
        &mut self,
        listener: OwnedFd,
        door_ports: Vec<u16>,
        see: impl Fn(Observation) + Send + 'static,
    ) -> io::Result<()> {
        let notifier = Notifier::new(listener);
        let answer = move || {
            if answer_all(&notifier, &door_ports, &see).is_err() {
                see(Observation::Failed("the judge of connections broke"));
            }
        };
        let thread = thread::Builder::new().name("judge".to_owned()).spawn(answer)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the watch after what is already there was seen. The jail must be dead by now.
    pub fn finish(mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to tell.
            drop(thread.join());
        }
    }
}

fn watch(
    tap: &OwnedFd,
    decoys: Option<&DecoyWatch>,
    stopped: &OwnedFd,
    see: &impl Fn(Observation),
) -> io::Result<()> {
    loop {
        let mut waits = vec![
            PollFd::new(stopped.as_fd(), PollFlags::empty()),
            PollFd::new(tap.as_fd(), PollFlags::POLLIN),
        ];
        waits.extend(decoys.map(|decoys| PollFd::new(decoys.as_fd(), PollFlags::POLLIN)));
        match poll(&mut waits, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        let is_stopping = waits[0].any().unwrap_or(true);
        while let Some(attempt) = tap::read(tap)? {
            see(Observation::Attempted(attempt));
        }
        for mask in decoys.map_or_else(|| Ok(Vec::new()), DecoyWatch::opened)? {
            see(Observation::DecoyOpened(mask));
        }
        if is_stopping {
            return Ok(());
        }
    }
}

fn answer_all(
    notifier: &Notifier,
    door_ports: &[u16],
    see: &impl Fn(Observation),
) -> io::Result<()> {
    loop {
        let mut wait = [PollFd::new(notifier.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wait, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        let seen = wait[0].revents().unwrap_or(PollFlags::POLLHUP);
        if !seen.contains(PollFlags::POLLIN) {
            // Everybody under the filter is gone.
            return Ok(());
        }
        match notifier.receive() {
            Ok(asked) => {
                if let Some(refused) = connects::judge(notifier, &asked, door_ports)? {
                    see(Observation::ConnectRefused(refused));
                }
            }
            // The caller died meanwhile, or a signal came.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
            Err(other) => return Err(other),
        }
    }
}
