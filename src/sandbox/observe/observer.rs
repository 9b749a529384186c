//! The thread that watches.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;

use super::connects::{self, RefusedConnect};
use super::decoys::DecoyWatch;
use super::names::{Late, NameJudge, Names, RefusedName};
use super::tap::{self, Attempt};
use crate::guard::GuardHandle;
use crate::plan::{Guarded, Mask, MaskKind};
use crate::sys::{Notifier, Verdict};

/// Something that was seen at the wall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// The decoy of this place in the plan's masks was opened.
    DecoyOpened(usize),
    /// A packet went where the door does not listen.
    Attempted(Attempt),
    /// A `connect` was refused.
    ConnectRefused(RefusedConnect),
    /// A name was not to be had.
    NameRefused(RefusedName),
    /// Something came too late for the guard.
    Late(Late),
    /// A watch broke; the jail must not go on unobserved.
    Failed(&'static str),
}

/// Where a jail's attempts are seen.
#[derive(Debug)]
pub struct Wall<'w> {
    pub tap: OwnedFd,
    /// The directory of decoys.
    pub decoys: Option<OwnedFd>,
    /// The masks of the plan, which the decoys stand for.
    pub masks: &'w [Mask],
    /// The system calls of the jail that wait for a verdict.
    pub calls: OwnedFd,
    /// Who guards names, what it guards, and what the policy says of them.
    pub names: Option<(GuardHandle, &'w Guarded, Box<dyn Names>)>,
    /// Ports that the door serves: every other `connect` is refused.
    pub door_ports: Vec<u16>,
}

/// Watches for as long as it lives.
#[derive(Debug)]
pub struct Observer {
    thread: JoinHandle<()>,
    /// Closing it ends the thread.
    stop: OwnedFd,
}

/// An observer that only looks at what is already there.
#[derive(Debug)]
pub struct LastLook(JoinHandle<()>);

impl Observer {
    /// Watches `wall`; every watch is in place when this returns. `see` is called on the watching
    /// thread, and dropped with it.
    pub fn start(wall: Wall<'_>, see: impl Fn(Observation) + Send + 'static) -> io::Result<Self> {
        let Wall { tap, decoys, masks, calls, names, door_ports } = wall;
        let hidden = masks.iter().enumerate().filter_map(|(place, mask)| match mask.kind {
            MaskKind::Hidden { .. } => Some(place),
            MaskKind::Protected => None,
        });
        let decoys = decoys.map(|dir| DecoyWatch::new(dir.as_fd(), hidden)).transpose()?;
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let names = names.map(|(guard, guarded, names)| NameJudge::new(guard, guarded, names));
        let calls = Some(Notifier::new(calls));
        let mut watch = Watch { tap, decoys, calls, names, door_ports };
        let watch = move || {
            let watched = watch.until(&stopped, &see);
            if watched.and_then(|()| tap::close(watch.tap)).is_err() {
                see(Observation::Failed("the watch on the jail broke"));
            }
        };
        let thread = thread::Builder::new().name("observe".to_owned()).spawn(watch)?;
        Ok(Self { thread, stop })
    }

    /// Ends the watch after what is already there. The jail must be dead by now.
    #[must_use]
    pub fn stop(self) -> LastLook {
        drop(self.stop);
        LastLook(self.thread)
    }
}

impl LastLook {
    /// Waits for the end of it, which comes when everything was seen.
    pub fn wait(self) {
        // A thread that panicked has nothing more to tell.
        drop(self.0.join());
    }
}

/// So many packets are read before the other watches are looked at again.
const AT_ONCE: usize = 64;

struct Watch {
    tap: OwnedFd,
    decoys: Option<DecoyWatch>,
    /// `None` when everybody under the filter is gone.
    calls: Option<Notifier>,
    names: Option<NameJudge>,
    door_ports: Vec<u16>,
}

/// What one wait came to.
struct Woken {
    is_stopping: bool,
    /// How the calls that wait stand.
    calls: PollFlags,
    /// Something appeared on the host.
    has_appeared: bool,
}

impl Watch {
    /// Tells `see` until `stopped` is closed and everything is told.
    fn until(&mut self, stopped: &OwnedFd, see: &impl Fn(Observation)) -> io::Result<()> {
        loop {
            let woken = self.wait(stopped)?;
            if woken.calls.contains(PollFlags::POLLIN) {
                self.judge_one(see)?;
            } else if !woken.calls.is_empty() {
                self.calls = None;
            }
            if let Some(names) = &mut self.names
                && (woken.has_appeared || names.is_behind())
            {
                for late in names.tend()? {
                    see(Observation::Late(late));
                }
            }
            for mask in self.decoys.as_ref().map_or_else(|| Ok(Vec::new()), DecoyWatch::opened)? {
                see(Observation::DecoyOpened(mask));
            }
            let is_drained = self.drain_tap(see)?;
            if woken.is_stopping && is_drained {
                return Ok(());
            }
        }
    }

    fn wait(&self, stopped: &OwnedFd) -> io::Result<Woken> {
        let mut waits = vec![
            PollFd::new(stopped.as_fd(), PollFlags::empty()),
            PollFd::new(self.tap.as_fd(), PollFlags::POLLIN),
        ];
        waits.extend(self.decoys.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        waits.extend(self.names.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        waits.extend(self.calls.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        while let Err(error) = poll(&mut waits, PollTimeout::NONE) {
            if error != Errno::EINTR {
                return Err(error.into());
            }
        }
        let is_stopping = waits[0].any().unwrap_or(true);
        let calls = waits.last().filter(|_| self.calls.is_some());
        // Flags that are not known to us are an error of the descriptor.
        let calls = calls.map(|fd| fd.revents().unwrap_or(PollFlags::POLLERR));
        let at = 2 + usize::from(self.decoys.is_some());
        let names = waits.get(at).filter(|_| self.names.is_some());
        let has_appeared = names.is_some_and(|fd| fd.any().unwrap_or(true));
        Ok(Woken { is_stopping, calls: calls.unwrap_or(PollFlags::empty()), has_appeared })
    }

    /// Reads the tap; says whether that was all.
    fn drain_tap(&self, see: &impl Fn(Observation)) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            let Some(attempt) = tap::read(&self.tap)? else { return Ok(true) };
            see(Observation::Attempted(attempt));
        }
        Ok(false)
    }

    fn judge_one(&mut self, see: &impl Fn(Observation)) -> io::Result<()> {
        let Some(notifier) = &self.calls else { return Ok(()) };
        match notifier.receive() {
            Ok(asked) if NameJudge::is_about_names(asked.call) => {
                let Some(names) = &mut self.names else {
                    return notifier.answer(&asked, Verdict::Continue);
                };
                if let Some(refused) = names.answer(notifier, &asked)? {
                    see(Observation::NameRefused(refused));
                }
                Ok(())
            }
            Ok(asked) => {
                if let Some(refused) = connects::judge(notifier, &asked, &self.door_ports)? {
                    see(Observation::ConnectRefused(refused));
                }
                Ok(())
            }
            // The caller died meanwhile, or a signal came.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                Ok(())
            }
            Err(other) => Err(other),
        }
    }
}
