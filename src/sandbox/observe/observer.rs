//! The thread that watches.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;

use super::connects::{self, RefusedConnect};
use super::decoys::DecoyWatch;
use super::names::{GuardedTree, Late, NameJudge, RefusedName};
use super::processes::{ProcessSeen, Tracker};
use super::tap::{self, Attempt};
use crate::collector;
use crate::guard::GuardHandle;
use crate::plan::{Mask, MaskKind};
use crate::seccomp::Family;
use crate::sys::{Notification, Notifier, Verdict};

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
    /// The system calls of the jail that wait for an answer.
    pub calls: OwnedFd,
    /// Who guards names, and the trees of the plan in which it does.
    pub names: Option<(GuardHandle, Vec<GuardedTree>)>,
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

/// An observer that only looks at what is already there. When that is told, what it was told to is
/// dropped, and it goes.
#[derive(Debug)]
pub struct LastLook(JoinHandle<()>);

impl Observer {
    /// Watches `wall`; every watch is in place when this returns. `see` and `tell` are called on the
    /// watching thread, and dropped with it. Processes of the jail wait while `tell` is called.
    pub fn start(
        wall: Wall<'_>,
        see: impl Fn(Observation) + Send + 'static,
        tell: impl FnMut(ProcessSeen) + Send + 'static,
    ) -> io::Result<Self> {
        let Wall { tap, decoys, masks, calls, names, door_ports } = wall;
        let hidden = masks.iter().enumerate().filter_map(|(place, mask)| match mask.kind {
            MaskKind::Hidden { .. } => Some(place),
            MaskKind::Protected => None,
        });
        let decoys = decoys.map(|dir| DecoyWatch::new(dir.as_fd(), hidden)).transpose()?;
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let processes = Tracker::new(tell)?;
        let calls = Some(Notifier::new(calls));
        let names = names.map(|(guard, trees)| NameJudge::new(guard, trees));
        let deaf_until = Instant::now();
        let mut watch = Watch { tap, decoys, calls, names, door_ports, processes, deaf_until };
        let watch = move || {
            let watched = watch.until(&stopped, &see);
            watch.processes.finish();
            if watched.is_err() {
                see(Observation::Failed("the watch on the jail broke"));
            }
            drop(see);
            // Nothing is lost where that fails but time.
            drop(collector::leave(watch, |watch| {
                let decoys = watch.decoys.iter().map(AsFd::as_fd);
                decoys.chain([watch.tap.as_fd()]).collect()
            }));
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
    /// Waits until it is gone, and the guard with it.
    pub fn wait(self) {
        // A thread that panicked has nothing more to tell.
        drop(self.0.join());
    }
}

/// So long after an end of a process the next ones wait: a build has hundreds in a second, and to be
/// woken costs more than to take them in.
const LULL: Duration = Duration::from_millis(20);

/// So many packets are read before the other watches are looked at again.
const AT_ONCE: usize = 64;

struct Watch<T> {
    tap: OwnedFd,
    decoys: Option<DecoyWatch>,
    /// `None` when everybody under the filter is gone.
    calls: Option<Notifier>,
    names: Option<NameJudge>,
    door_ports: Vec<u16>,
    processes: Tracker<T>,
    /// Nobody listens for ends of processes before that.
    deaf_until: Instant,
}

/// What one wait came to, for each that is waited for.
struct Woken {
    stop: PollFlags,
    tap: PollFlags,
    processes: PollFlags,
    decoys: PollFlags,
    /// The guard has something to tell.
    names: PollFlags,
    calls: PollFlags,
}

impl<T: FnMut(ProcessSeen)> Watch<T> {
    /// Tells `see` until `stopped` is closed and everything is told.
    fn until(&mut self, stopped: &OwnedFd, see: &impl Fn(Observation)) -> io::Result<()> {
        loop {
            let woken = self.wait(stopped)?;
            if !woken.processes.is_empty() {
                self.processes.take_exits()?;
                self.deaf_until = Instant::now() + LULL;
            }
            if woken.calls.contains(PollFlags::POLLIN) {
                self.answer_one(see)?;
            } else if !woken.calls.is_empty() {
                self.calls = None;
            }
            if let Some(names) = &mut self.names
                && (!woken.names.is_empty() || names.is_behind())
            {
                for late in names.tend()? {
                    see(Observation::Late(late));
                }
            }
            self.processes.look_again(Instant::now());
            if let Some(decoys) = self.decoys.as_ref().filter(|_| !woken.decoys.is_empty()) {
                for mask in decoys.opened()? {
                    see(Observation::DecoyOpened(mask));
                }
            }
            let is_drained = woken.tap.is_empty() || self.drain_tap(see)?;
            if !woken.stop.is_empty() && is_drained {
                return Ok(());
            }
        }
    }

    fn wait(&self, stopped: &OwnedFd) -> io::Result<Woken> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let is_deaf = Instant::now() < self.deaf_until;
        let mut waits =
            vec![PollFd::new(stopped.as_fd(), PollFlags::empty()), readable(self.tap.as_fd())];
        waits.extend((!is_deaf).then(|| readable(self.processes.as_fd())));
        waits.extend(self.decoys.iter().map(|decoys| readable(decoys.as_fd())));
        waits.extend(self.names.iter().map(|names| readable(names.as_fd())));
        waits.extend(self.calls.iter().map(|calls| readable(calls.as_fd())));
        let wake = self.processes.due().into_iter().chain(is_deaf.then_some(self.deaf_until)).min();
        while let Err(error) = poll(&mut waits, patience(wake)) {
            if error != Errno::EINTR {
                return Err(error.into());
            }
        }
        // Flags that are not known to us are an error of the descriptor.
        let mut seen = waits.iter().map(|wait| wait.revents().unwrap_or(PollFlags::POLLERR));
        let mut next = |is_there: bool| is_there.then(|| seen.next()).flatten();
        let mut next = |is_there| next(is_there).unwrap_or(PollFlags::empty());
        Ok(Woken {
            stop: next(true),
            tap: next(true),
            processes: next(!is_deaf),
            decoys: next(self.decoys.is_some()),
            names: next(self.names.is_some()),
            calls: next(self.calls.is_some()),
        })
    }

    /// Reads the tap; says whether that was all.
    fn drain_tap(&self, see: &impl Fn(Observation)) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            let Some(attempt) = tap::read(&self.tap)? else { return Ok(true) };
            see(Observation::Attempted(attempt));
        }
        Ok(false)
    }

    fn answer_one(&mut self, see: &impl Fn(Observation)) -> io::Result<()> {
        let Some(notifier) = &self.calls else { return Ok(()) };
        match notifier.receive() {
            Ok(asked) => self.answer(&asked, see),
            // The caller died meanwhile, or a signal came.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// Answers one call, by what it is about.
    fn answer(&mut self, asked: &Notification, see: &impl Fn(Observation)) -> io::Result<()> {
        let Some(notifier) = &self.calls else { return Ok(()) };
        match Family::of(asked.call) {
            Some(Family::Connect) => {
                if let Some(refused) = connects::judge(notifier, asked, &self.door_ports)? {
                    see(Observation::ConnectRefused(refused));
                }
                Ok(())
            }
            Some(Family::Naming) => {
                let Some(names) = &mut self.names else {
                    return notifier.answer(asked, Verdict::Continue);
                };
                if let Some(refused) = names.answer(notifier, asked)? {
                    see(Observation::NameRefused(refused));
                }
                Ok(())
            }
            Some(Family::Exec) => {
                // A pid comes back only after its last owner is gone: hear of that first.
                self.processes.take_exits()?;
                self.processes.exec_asked(asked.pid, || notifier.is_waiting(asked));
                notifier.answer(asked, Verdict::Continue)
            }
            Some(Family::Begin) => {
                self.processes.begun(asked.pid);
                notifier.answer(asked, Verdict::Continue)
            }
            Some(Family::Exit) => {
                self.processes.exit_asked(asked.pid);
                notifier.answer(asked, Verdict::Continue)
            }
            // No filter of ours asks for another.
            None => notifier.answer(asked, Verdict::Refuse(libc::ENOSYS)),
        }
    }
}

/// How long there is until `wake`.
fn patience(wake: Option<Instant>) -> PollTimeout {
    let Some(wake) = wake else { return PollTimeout::NONE };
    let left = wake.saturating_duration_since(Instant::now()).as_millis();
    // Rounded up: who wakes too early waits again for nothing.
    PollTimeout::try_from(left + 1).unwrap_or(PollTimeout::MAX)
}
