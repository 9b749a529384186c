//! The one writer of a run's ledger, on a thread of its own.
//!
//! All entries come through one bounded channel, so that their order is one, a flood pushes back
//! instead of filling the memory, and callers that wait at the same time share one fdatasync.
//!
//! The first failure is final. After a failed write the torn line is taken back; what comes later
//! is counted, and when the ledger is closed it is said how much is missing, if the disk takes
//! that. After a failed sync nothing is written any more: the kernel may have dropped the pages
//! and would report the next sync as a success.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::chain::{self, Head, Words};
use crate::event::AlertRaised;
use crate::index::{Closed, Index, IndexError, IndexEvent};
use crate::receipt::Pending;
use crate::recorder::{Failure, Message, Observation};
use crate::redact::Redactions;
use crate::repeat::{Repeats, Seen, Subject};
use crate::state::{NewRun, StateDir, StateError, lock};
use crate::{Actor, Clock, Event, RecordError, Recorder, RunId};

/// Events that may wait for the writer.
const INBOX: usize = 1024;
/// Events that are written together.
const BATCH: usize = 256;
/// What nobody waits for is synced this late at most.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// With nothing to do the writer only looks up this often.
const IDLE: Duration = Duration::from_secs(3600);

/// Why a run's ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the ledger of {run} cannot be made")]
    State {
        run: RunId,
        #[source]
        cause: StateError,
    },
    #[error("cannot lock the ledger of {run}")]
    Lock {
        run: RunId,
        #[source]
        cause: io::Error,
    },
    #[error("{run} cannot be entered in the index")]
    Index {
        run: RunId,
        #[source]
        cause: IndexError,
    },
    #[error("cannot start the writer of the ledger")]
    Thread(#[source] io::Error),
}

/// Why a run's ledger is not closed. The next run recovers it.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    #[error("the ledger is not complete")]
    Incomplete(#[source] RecordError),
    #[error("the end of the run cannot be entered in the index")]
    Index(#[source] IndexError),
    #[error("the end of the run cannot be made durable in the index")]
    Sync(#[source] io::Error),
    #[error("the writer of the ledger is gone")]
    Gone,
}

/// The open ledger of a run. Dropped without being closed, it is left for recovery.
#[derive(Debug)]
pub struct Ledger {
    inbox: SyncSender<Message>,
}

impl Ledger {
    /// Opens the ledger of a new run.
    ///
    /// Nothing is synced here: the first durable record waits for the ledger, the index and the
    /// directories alike, while the caller gets on with the launch.
    pub fn open(
        state: &StateDir,
        run: RunId,
        clock: Clock,
        redactions: Redactions,
    ) -> Result<(Self, Recorder), OpenError> {
        let NewRun { dir, ledger } = state.create_run(&run).map_err(|cause| OpenError::State {
            run: run.clone(),
            cause,
        })?;
        // Taken before the index knows the run, so that nobody can think it dead.
        let ledger =
            lock(ledger, FlockArg::LockExclusiveNonblock).map_err(|cause| OpenError::Lock {
                run: run.clone(),
                cause,
            })?;
        let index = enter(state, &run, &IndexEvent::RunOpened {}, &clock).map_err(|cause| {
            OpenError::Index {
                run: run.clone(),
                cause,
            }
        })?;
        let runs = Arc::clone(state.runs_fd());
        let opening = thread::Builder::new()
            .name("kvro-ledger-open".to_owned())
            .spawn(move || {
                index.sync_data()?;
                nix::unistd::fsync(&dir)?;
                nix::unistd::fsync(&*runs)?;
                Ok(())
            })
            .map_err(OpenError::Thread)?;

        let (inbox, messages) = sync_channel(INBOX);
        let failure = Failure::default();
        let recorder = Recorder::new(inbox.clone(), clock.clone(), failure.clone());
        let writer = Writer {
            state: state.clone(),
            run,
            clock,
            redactions,
            file: ledger,
            head: Head::EMPTY,
            written: Head::EMPTY,
            buffer: Vec::new(),
            waiting: Vec::new(),
            unsynced: None,
            repeats: Repeats::default(),
            opening: Some(opening),
            failure,
            broken: None,
        };
        thread::Builder::new()
            .name("kvro-ledger".to_owned())
            .spawn(move || writer.serve(&messages))
            .map_err(OpenError::Thread)?;
        Ok((Self { inbox }, recorder))
    }

    /// Writes everything recorded so far, makes it durable and enters the end in the index.
    ///
    /// What is recorded later, through clones of the recorder, is lost.
    pub fn close(self) -> Result<Head, CloseError> {
        let (reply, answer) = sync_channel(1);
        self.inbox
            .send(Message::Close(reply))
            .map_err(|_gone| CloseError::Gone)?;
        answer.recv().map_err(|_gone| CloseError::Gone)?
    }
}

/// Appends one line to the index and gives the file to sync.
pub(crate) fn enter(
    state: &StateDir,
    run: &RunId,
    event: &IndexEvent,
    clock: &Clock,
) -> Result<File, IndexError> {
    let mut index = Index::lock(state, run, clock)?;
    index.append(run, event, clock)?;
    index.unlock()
}

struct Writer {
    state: StateDir,
    run: RunId,
    clock: Clock,
    redactions: Redactions,
    file: Flock<File>,
    /// The head with what is in the buffer.
    head: Head,
    /// The head of what the file holds.
    written: Head,
    buffer: Vec<u8>,
    /// Who waits for entries that are not durable yet.
    waiting: Vec<(Pending, u64)>,
    /// Since when something is written but not durable.
    unsynced: Option<Instant>,
    repeats: Repeats,
    /// Makes the run's directory and its place in the index durable.
    opening: Option<JoinHandle<io::Result<()>>>,
    failure: Failure,
    broken: Option<Broken>,
}

/// The state after the first failure.
struct Broken {
    error: RecordError,
    end: End,
    lost: u64,
    /// How the run ended is worth a second try.
    last_words: Option<Observation>,
}

/// What the file ends in after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The last whole entry.
    Clean,
    /// Perhaps a torn line, perhaps pages that never reach the disk.
    Doubtful,
}

impl Writer {
    fn serve(mut self, inbox: &Receiver<Message>) {
        loop {
            let first = match inbox.recv_timeout(self.patience()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.finish();
                    return;
                }
            };
            for message in first.into_iter().chain(inbox.try_iter().take(BATCH)) {
                match message {
                    Message::Record(observation) => self.take(*observation),
                    Message::Close(reply) => {
                        let closed = self.close();
                        // Whoever asked may have stopped waiting; the ledger is closed anyway.
                        drop(reply.send(closed));
                        return;
                    }
                }
            }
            self.tend(Instant::now());
        }
    }

    /// How long there is nothing to do unless something arrives.
    fn patience(&self) -> Duration {
        let sync = self.unsynced.map(|since| since + SYNC_INTERVAL);
        let next = [sync, self.repeats.due()].into_iter().flatten().min();
        next.map_or(IDLE, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Writes and syncs what is due.
    fn tend(&mut self, now: Instant) {
        if self.repeats.due().is_some_and(|due| due <= now) {
            self.write_repeats();
        }
        self.flush();
        let overdue = self
            .unsynced
            .is_some_and(|since| now >= since + SYNC_INTERVAL);
        if overdue || !self.waiting.is_empty() {
            self.sync();
        }
    }

    fn take(&mut self, observation: Observation) {
        if let Some(broken) = &mut self.broken {
            broken.take(observation);
            return;
        }
        let Observation {
            time,
            actor,
            event,
            pending,
        } = observation;
        // Whoever waits for an entry gets one.
        let subject = if pending.is_none() {
            Subject::of(actor, &event)
        } else {
            None
        };
        if let Some(subject) = &subject
            && self.repeats.count(subject, time, Instant::now()) == Seen::Counted
        {
            return;
        }
        let Some(seq) = self.append(time, actor, &event) else {
            return;
        };
        self.waiting.extend(pending.map(|pending| (pending, seq)));
        if let Some(subject) = subject {
            for repeated in self.repeats.remember(subject, seq, time) {
                self.append(time, Actor::Ledger, &Event::Repeated(repeated));
            }
        }
    }

    fn write_repeats(&mut self) {
        let time = self.clock.now();
        for repeated in self.repeats.take() {
            self.append(time, Actor::Ledger, &Event::Repeated(repeated));
        }
    }

    /// Puts an entry into the buffer.
    fn append(&mut self, time: jiff::Timestamp, actor: Actor, event: &Event) -> Option<u64> {
        let run = self.run.clone();
        let appended = crate::entry::name_and_data(event).and_then(|(event, mut data)| {
            self.redactions.apply(&mut data);
            let words = Words {
                time,
                run,
                actor,
                event,
                data,
            };
            chain::append(&mut self.head, words, &mut self.buffer)
        });
        match appended {
            Ok(seq) => Some(seq),
            Err(cause) => {
                self.fail(RecordError::Write(Arc::new(cause.into())));
                None
            }
        }
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() || self.broken.is_some() {
            return;
        }
        match (&*self.file).write_all(&self.buffer) {
            Ok(()) => {
                self.buffer.clear();
                self.written = self.head;
                self.unsynced.get_or_insert_with(Instant::now);
            }
            Err(cause) => self.fail(RecordError::Write(Arc::new(cause))),
        }
    }

    fn sync(&mut self) {
        if self.broken.is_some() {
            return;
        }
        match self.try_sync() {
            Ok(()) => {
                self.unsynced = None;
                self.waiting
                    .drain(..)
                    .for_each(|(pending, seq)| pending.settle(Ok(seq)));
            }
            Err(cause) => self.fail(RecordError::Sync(Arc::new(cause))),
        }
    }

    fn try_sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        match self.opening.take() {
            None => Ok(()),
            Some(opening) => opening
                .join()
                .map_err(|_panic| io::Error::other("the thread is gone"))?,
        }
    }

    fn fail(&mut self, error: RecordError) {
        let lost = self.head.seq - self.written.seq;
        self.buffer.clear();
        self.head = self.written;
        let end = match &error {
            // What was written of a line is taken back, so that another may follow.
            RecordError::Write(_) if self.file.set_len(self.written.bytes).is_ok() => End::Clean,
            RecordError::Write(_) | RecordError::Sync(_) | RecordError::Closed => End::Doubtful,
        };
        for (pending, _) in self.waiting.drain(..) {
            pending.settle(Err(error.clone()));
        }
        self.failure.tell(&error);
        self.unsynced = None;
        self.broken = Some(Broken {
            error,
            end,
            lost,
            last_words: None,
        });
    }

    /// Leaves the ledger whole but open, to be recovered.
    fn finish(&mut self) {
        self.write_repeats();
        self.flush();
        self.sync();
    }

    fn close(&mut self) -> Result<Head, CloseError> {
        self.finish();
        let Some(Broken {
            error,
            end,
            lost,
            last_words,
        }) = self.broken.take()
        else {
            self.enter_end()?;
            return Ok(self.written);
        };
        if end == End::Clean {
            self.confess(&error, lost, last_words);
        }
        Err(CloseError::Incomplete(error))
    }

    /// Says in the ledger itself what is missing from it, if it can be written again.
    fn confess(&mut self, error: &RecordError, lost: u64, last_words: Option<Observation>) {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        let missing = Event::AlertRaised(AlertRaised {
            what: "ledger_incomplete".to_owned(),
            detail: format!(
                "{lost} entries are missing: {error}{}",
                cause.unwrap_or_default()
            ),
        });
        self.append(self.clock.now(), Actor::Ledger, &missing);
        if let Some(Observation {
            time, actor, event, ..
        }) = last_words
        {
            self.append(time, actor, &event);
        }
        self.flush();
        self.sync();
        if self.broken.is_none() {
            // The caller hears of the first failure; an index that fails too is left to recovery.
            drop(self.enter_end());
        }
    }

    fn enter_end(&self) -> Result<(), CloseError> {
        let end = IndexEvent::RunClosed(Closed::from(self.written));
        let index = enter(&self.state, &self.run, &end, &self.clock).map_err(CloseError::Index)?;
        index.sync_data().map_err(CloseError::Sync)
    }
}

impl Broken {
    /// Refuses an entry. How the run ended is kept for the end, and refused all the same.
    fn take(&mut self, mut observation: Observation) {
        if let Some(pending) = observation.pending.take() {
            pending.settle(Err(self.error.clone()));
        }
        if let Event::RunEnded(_) = observation.event {
            self.last_words = Some(observation);
        } else {
            self.lost += 1;
        }
    }
}
