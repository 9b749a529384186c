//! The loop of a run: from the jail's start to its last process.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kvro_ledger::event::{
    EgressAttempted, EndedBy, HiddenExposed, HiddenOpened, IsolationDegraded, KillCompleted,
    KillRequested, NameRefused,
};
use kvro_ledger::{Actor, Clock, Event, Recorder, StateDir};
use kvro_proxy::{AddressBook, Door, DoorError};
use kvro_sandbox::{
    Attempt, Ended, Guarded, GuardedTree, Jail, JailEvent, LastLook, Late, LaunchError, Mask,
    Observation, Observer, RefusedConnect, RefusedName, Starting, Wall,
};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::control::{Control, Status};
use super::ending::{Cause, EndRequests};
use super::outcome::Outcome;
use super::processes::ProcessRecord;
use super::signals::{self, Arrived, Signals, Wish};
use super::terminal::{Relay, Streams};
use crate::plan::ClosedNames;

/// What waits between the watching thread and the loop; a flood makes the watcher wait.
const OBSERVATIONS: usize = 256;

/// Everything that a session is made of, ready.
#[derive(Debug)]
pub struct Session<'s> {
    pub starting: Starting,
    pub masks: &'s [Mask],
    /// The plan's guarded trees, and what the policy says of names in each.
    pub guarded: &'s [Guarded],
    pub names: Vec<ClosedNames>,
    /// Paths in events are relative to it.
    pub workspace: &'s Path,
    pub door: Door,
    pub door_ports: Vec<u16>,
    pub book: Arc<AddressBook>,
    pub recorder: Recorder,
    pub ends: EndRequests,
    pub streams: Streams,
    pub grace: Duration,
    pub max_wall: Option<Duration>,
    pub program: String,
}

/// How a session went.
#[derive(Debug)]
pub struct Lived {
    pub outcome: Outcome,
    /// What is left of the watch on the jail, to be waited for.
    pub last_look: Option<LastLook>,
}

/// Lets the agent run and sees the run to its end: nothing of the jail is alive when this returns.
///
/// `state` is where the run is kept, and `run_dir` in it is where the control socket lies; `status`
/// is what it tells.
pub async fn live(
    session: Session<'_>,
    state: &StateDir,
    run_dir: &Path,
    status: impl Fn() -> Status,
) -> io::Result<Lived> {
    let Session { starting, masks, guarded, names, workspace, door, .. } = session;
    let Session { door_ports, book, recorder, ends, .. } = session;
    let Starting { jail, door: sockets, calls, guard, decoys, terminal } = starting;
    let (seen, mut observed) = mpsc::channel(OBSERVATIONS);
    let see = move |observation| drop(seen.blocking_send(observation));
    let trees = guarded
        .iter()
        .zip(names)
        .enumerate()
        .map(|(number, (guarded, names))| GuardedTree::new(number, guarded, Box::new(names)));
    let names = guard.map(|guard| (guard, trees.collect()));
    let wall = Wall { tap: sockets.tap, decoys, masks, calls, names, door_ports };
    let (processes, tell) = ProcessRecord::start(recorder.clone(), Clock::system(), state)?;
    let observer = Observer::start(wall, see, tell)?;
    let relay = terminal.map(|master| Relay::start(master, session.streams)).transpose()?;
    let control = Control::open(run_dir)?;
    let kill_by_user = || ends.now(Cause::User("somebody asked for the end of the run".to_owned()));
    let jail = Arc::new(jail);
    let mut events = listen(&jail)?;
    let mut run = Run {
        jail,
        observer: Some(observer),
        processes,
        relay,
        recorder,
        ends: ends.clone(),
        names: Names { masks, workspace, book },
        phase: Phase::Running,
        ended: None,
        not_run: None,
        is_over: false,
        hears_itself: false,
        grace: session.grace,
    };
    let mut control = pin!(control.serve(status, kill_by_user));
    let mut door: Pin<&mut dyn Future<Output = Result<Infallible, DoorError>>> = pin!(door.serve());
    let mut signals = Signals::listen()?;
    run.jail.go()?;
    let wall = session.max_wall.map(|wall| (Instant::now() + wall, wall));

    let mut has_door = true;
    while !run.is_over {
        tokio::select! {
            Some(event) = events.recv() => run.tell(event?)?,
            cause = ends.due(), if run.is_running() => run.begin_end(&cause),
            () = at(run.deadline()) => run.kill()?,
            Some(observation) = observed.recv() => run.see(observation),
            signal = signals.next() => run.signal(signal)?,
            () = at(wall.map(|(end, _)| end)), if run.is_running() => run.wall(wall),
            Err(error) = &mut door, if has_door => {
                has_door = false;
                ends.now(Cause::Failure(format!("the door failed: {error}")));
            }
            _ = &mut control => {}
        }
    }
    run.finish(&mut observed, &session.program).await
}

/// Passes on what the jail tells, from a thread that may block; ends with the jail.
fn listen(jail: &Arc<Jail>) -> io::Result<mpsc::Receiver<io::Result<Option<JailEvent>>>> {
    let (tell, told) = mpsc::channel(16);
    let jail = Arc::clone(jail);
    let listen = move || {
        loop {
            let event = jail.event();
            let is_last = !matches!(event, Ok(Some(_)));
            if tell.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("jail".to_owned()).spawn(listen)?;
    Ok(told)
}

/// How far the end of a run has come.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Running,
    /// SIGTERM is out.
    Ending {
        since: Instant,
    },
    /// SIGKILL is out.
    Killed {
        since: Instant,
    },
}

struct Run<'s> {
    jail: Arc<Jail>,
    observer: Option<Observer>,
    processes: ProcessRecord,
    relay: Option<Relay>,
    recorder: Recorder,
    ends: EndRequests,
    names: Names<'s>,
    phase: Phase,
    ended: Option<Ended>,
    not_run: Option<LaunchError>,
    is_over: bool,
    /// The stop that goes to our own pipeline comes to us as well, and is no other one.
    hears_itself: bool,
    grace: Duration,
}

/// Sleeps until `deadline`, for ever without one.
async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl Run<'_> {
    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ending { since } => Some(since + self.grace),
            Phase::Running | Phase::Killed { .. } => None,
        }
    }

    fn tell(&mut self, event: Option<JailEvent>) -> io::Result<()> {
        match event {
            Some(JailEvent::Stopped(_)) => self.stop_with_the_command()?,
            Some(JailEvent::Ended(ended)) => self.ended = Some(ended),
            Some(JailEvent::NotRun(error)) => self.not_run = Some(error),
            None => self.is_over = true,
        }
        Ok(())
    }

    /// Puts the end on record; what is left after the grace is killed.
    fn request_end(&mut self, cause: &Cause) {
        self.phase = Phase::Ending { since: Instant::now() };
        let (ended_by, reason) = (cause.ended_by(), cause.reason().to_owned());
        let event = Event::KillRequested(KillRequested { cause: ended_by, reason });
        self.recorder.record(Actor::Supervisor, event);
    }

    fn begin_end(&mut self, cause: &Cause) {
        self.request_end(cause);
        // A stopped process would not see the SIGTERM. A jail that is gone needs neither.
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            drop(self.jail.signal_all(signal as i32));
        }
    }

    fn kill(&mut self) -> io::Result<()> {
        if let Phase::Ending { since } = self.phase {
            self.phase = Phase::Killed { since };
        }
        // Defence::KillSwitch: lifetime::who_ignores_signals_ends_after_the_grace.
        self.jail.kill()
    }

    fn wall(&self, wall: Option<(Instant, Duration)>) {
        let limit = wall.map_or(Duration::ZERO, |(_, limit)| limit);
        let reason = format!("the wall time of {} s is over", limit.as_secs_f64());
        self.ends.now(Cause::Wall(reason));
    }

    fn see(&self, observation: Observation) {
        match observation {
            Observation::Failed(what) => self.ends.now(Cause::Failure(what.to_owned())),
            seen @ (Observation::DecoyOpened(_)
            | Observation::NameRefused(_)
            | Observation::Late(_)
            | Observation::Attempted(_)
            | Observation::ConnectRefused(_)) => {
                if let Some(event) = self.names.event(seen) {
                    self.recorder.record(Actor::Sandbox, event);
                }
            }
        }
    }

    fn signal(&mut self, arrived: Arrived) -> io::Result<()> {
        match arrived {
            Arrived::ForGroup(signal) => drop(self.jail.signal_group(signal)),
            Arrived::ForCommand(signal) => {
                let reason = || format!("signal {signal} asked the supervisor to end");
                match signals::wish(signal) {
                    // The command is told alone: it may need its children to clean up.
                    Wish::End if self.is_running() => {
                        let cause = Cause::User(reason());
                        self.request_end(&cause);
                        self.ends.now(cause);
                        for signal in [signal, Signal::SIGCONT as i32] {
                            drop(self.jail.signal_command(signal));
                        }
                    }
                    // Somebody who asks again means it.
                    Wish::End => self.kill()?,
                    Wish::EndSoon => {
                        drop(self.jail.signal_command(signal));
                        self.ends.soon(Cause::User(reason()));
                    }
                    Wish::None => drop(self.jail.signal_command(signal)),
                }
            }
            Arrived::Stop if std::mem::take(&mut self.hears_itself) => {}
            // We stop when the command has done so.
            Arrived::Stop => drop(self.jail.signal_group(Signal::SIGTSTP as i32)),
            Arrived::Resized => {
                if let Some(relay) = &self.relay {
                    relay.resize();
                }
            }
        }
        Ok(())
    }

    /// Gives the terminal back to the caller's shell until it says `fg`.
    ///
    /// Without a terminal, a command that stops is between it and whoever stopped it.
    fn stop_with_the_command(&mut self) -> io::Result<()> {
        let Some(relay) = &self.relay else { return Ok(()) };
        relay.suspend()?;
        self.hears_itself = true;
        // Our pipeline, then ourselves: the shell waits for all of them.
        kill(Pid::from_raw(0), Signal::SIGTSTP).ok();
        raise(Signal::SIGSTOP)?;
        relay.resume()?;
        drop(self.jail.signal_group(Signal::SIGCONT as i32));
        Ok(())
    }

    /// Collects what is left when pid 1 is gone.
    async fn finish(
        mut self,
        observed: &mut mpsc::Receiver<Observation>,
        program: &str,
    ) -> io::Result<Lived> {
        self.jail.wait()?;
        if let Some(relay) = self.relay.take() {
            relay.finish();
        }
        let last_look = self.observer.take().map(Observer::stop);
        // It may be waiting for room: take what it has until it is done.
        while let Some(observation) = observed.recv().await {
            self.see(observation);
        }
        self.processes.finish();
        let (since, signal) = match self.phase {
            Phase::Running => (None, ""),
            Phase::Ending { since } => (Some(since), "SIGTERM"),
            Phase::Killed { since } => (Some(since), "SIGKILL"),
        };
        if let Some(since) = since {
            let duration_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let completed = KillCompleted { signal: signal.to_owned(), duration_ms };
            self.recorder.record(Actor::Supervisor, Event::KillCompleted(completed));
        }
        let outcome = match &self.not_run {
            Some(error) => Outcome::not_run(error, program),
            None => Outcome::of(self.ends.cause(), self.ended),
        };
        // A signal that the command obeyed by itself is the command's end.
        let by_itself = since.is_none() && outcome.ended_by == EndedBy::User;
        let outcome = if by_itself { Outcome::of(None, self.ended) } else { outcome };
        Ok(Lived { outcome, last_look })
    }
}

/// Turns what was seen into events with the names that people use.
struct Names<'s> {
    masks: &'s [Mask],
    workspace: &'s Path,
    book: Arc<AddressBook>,
}

impl Names<'_> {
    fn event(&self, seen: Observation) -> Option<Event> {
        match seen {
            Observation::DecoyOpened(place) => {
                let mask = self.masks.get(place)?;
                let path = mask.target.to_string_lossy().into_owned();
                Some(Event::HiddenOpened(HiddenOpened { path }))
            }
            Observation::Attempted(Attempt { address, port, protocol }) => {
                let transport = match protocol {
                    6 => "tcp".to_owned(),
                    17 => "udp".to_owned(),
                    other => format!("ip:{other}"),
                };
                let server = self.server(address);
                let attempt = EgressAttempted { server, port, transport, pid: None, command: None };
                Some(Event::EgressAttempted(attempt))
            }
            Observation::ConnectRefused(RefusedConnect { to, pid, command }) => {
                let server = self.server(to.ip());
                let transport = "tcp".to_owned();
                let attempt = EgressAttempted { server, port: to.port(), transport, pid, command };
                Some(Event::EgressAttempted(attempt))
            }
            Observation::NameRefused(RefusedName { path, verb }) => {
                let path = self.path(&path);
                Some(Event::NameRefused(NameRefused { path, verb: verb.to_owned() }))
            }
            Observation::Late(Late::Exposed(path)) => {
                let path = self.path(&path);
                Some(Event::HiddenExposed(HiddenExposed { path }))
            }
            Observation::Late(Late::Unwatched(dir)) => {
                let dir = self.path(&dir);
                let reason = format!(
                    "hidden names that the host makes in {dir} and beyond are not seen: \
                     fs.inotify.max_user_watches is too low"
                );
                let layer = "guard".to_owned();
                Some(Event::IsolationDegraded(IsolationDegraded { layer, reason }))
            }
            Observation::Failed(_) => None,
        }
    }

    fn path(&self, path: &Path) -> String {
        path.strip_prefix(self.workspace).unwrap_or(path).to_string_lossy().into_owned()
    }

    fn server(&self, address: std::net::IpAddr) -> String {
        let address = address.to_canonical();
        self.book.name_of(address).map_or_else(|| address.to_string(), |name| name.to_string())
    }
}
