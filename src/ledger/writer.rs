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
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::Flock;

use crate::chain::{self, Head, Words};
use crate::event::AlertRaised;
use crate::index::{Closed, IndexEvent, enter};
use crate::receipt::Pending;
use crate::recorder::{CloseReply, Failure, Message, Observation};
use crate::redact::Redactions;
use crate::repeat::{Repeats, Seen, Subject};
use crate::room::Room;
use crate::state::StateDir;
use crate::{Actor, Clock, CloseError, Event, RecordError, RunId};

/// Events that are written together.
const BATCH: usize = 256;
/// What nobody waits for is synced this late at most.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// With nothing to do the writer only looks up this often.
const IDLE: Duration = Duration::from_secs(3600);

/// Where a run is written.
pub(crate) struct Place {
    pub(crate) state: StateDir,
    pub(crate) run: RunId,
    pub(crate) file: Flock<File>,
    /// The index with the run's opening, to be synced.
    pub(crate) index: File,
}

pub(crate) struct Writer {
    state: StateDir,
    run: RunId,
    clock: Clock,
    redactions: Redactions,
    file: Flock<File>,
    opening: Opening,
    /// The head with what is in the buffer.
    head: Head,
    /// The head of what the file holds.
    written: Head,
    buffer: Vec<u8>,
    /// Who waits for entries that are not durable yet.
    waiting: Vec<(Pending, u64)>,
    room: Room,
    /// Since when something is written but not durable.
    unsynced: Option<Instant>,
    repeats: Repeats,
    failure: Failure,
    broken: Option<Broken>,
}

/// The run's opening in the index, on its way to the disk.
enum Opening {
    Written(File),
    Syncing(JoinHandle<io::Result<()>>),
    Durable,
}

impl Opening {
    /// Starts the sync, or takes in how it went once it is over.
    fn tend(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Durable) {
            Self::Written(index) => {
                let syncing = thread::Builder::new().name("kvro-ledger-index".to_owned());
                *self = Self::Syncing(syncing.spawn(move || index.sync_data())?);
                Ok(())
            }
            Self::Syncing(syncing) if syncing.is_finished() => joined(syncing.join()),
            Self::Syncing(syncing) => {
                *self = Self::Syncing(syncing);
                Ok(())
            }
            Self::Durable => Ok(()),
        }
    }
}

fn joined(outcome: thread::Result<io::Result<()>>) -> io::Result<()> {
    outcome.unwrap_or_else(|_panic| Err(io::Error::other("the syncing thread is gone")))
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
    pub(crate) fn new(at: Place, clock: Clock, redactions: Redactions, failure: Failure) -> Self {
        let Place { state, run, file, index } = at;
        Self {
            state,
            run,
            clock,
            redactions,
            file,
            opening: Opening::Written(index),
            head: Head::EMPTY,
            written: Head::EMPTY,
            buffer: Vec::new(),
            waiting: Vec::new(),
            room: Room::default(),
            unsynced: None,
            repeats: Repeats::default(),
            failure,
            broken: None,
        }
    }

    /// Writes what arrives until the ledger is closed or everyone who could send is gone.
    pub(crate) fn serve(mut self, inbox: Receiver<Message>) {
        let reply = loop {
            let first = match inbox.recv_timeout(self.patience()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                // Left whole, but open: to be recovered.
                Err(RecvTimeoutError::Disconnected) => {
                    self.finish();
                    self.sync();
                    return;
                }
            };
            let batch = first.into_iter().chain(inbox.try_iter().take(BATCH));
            if let Some(reply) = self.take_batch(batch) {
                break reply;
            }
            self.tend(Instant::now());
        };
        // Who records from now on is told that it is too late.
        drop(inbox);
        let closed = self.close();
        // Whoever asked may have stopped waiting; the ledger is closed anyway.
        drop(reply.send(closed));
    }

    /// Takes in what arrived, up to the wish to close.
    fn take_batch(&mut self, batch: impl Iterator<Item = Message>) -> Option<CloseReply> {
        for message in batch {
            match message {
                Message::Record(observation) => self.take(*observation),
                Message::Close(reply) => return Some(reply),
            }
        }
        None
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
        let overdue = self.unsynced.is_some_and(|since| now >= since + SYNC_INTERVAL);
        if overdue || !self.waiting.is_empty() {
            self.sync();
        }
    }

    fn take(&mut self, observation: Observation) {
        if let Some(broken) = &mut self.broken {
            broken.take(observation);
            return;
        }
        let Observation { time, actor, event, pending } = observation;
        // Whoever waits for an entry gets one.
        let subject = if pending.is_none() { Subject::of(actor, &event) } else { None };
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
            if let Some(broken) = &mut self.broken {
                broken.lost += repeated.count;
                continue;
            }
            self.append(time, Actor::Ledger, &Event::Repeated(repeated));
        }
    }

    /// Puts an entry into the buffer.
    fn append(&mut self, time: jiff::Timestamp, actor: Actor, event: &Event) -> Option<u64> {
        let run = self.run.clone();
        let appended = crate::entry::name_and_data(event).and_then(|(event, mut data)| {
            self.redactions.apply(&mut data);
            let words = Words { time, run, actor, event, data };
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
        let len = self.written.bytes + self.buffer.len() as u64;
        let room = self.room.make(&self.file, len);
        match room.and_then(|()| (&*self.file).write_all(&self.buffer)) {
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
                self.waiting.drain(..).for_each(|(pending, seq)| pending.settle(Ok(seq)));
            }
            Err(cause) => self.fail(RecordError::Sync(Arc::new(cause))),
        }
    }

    fn try_sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.opening.tend()
    }

    fn fail(&mut self, error: RecordError) {
        let lost = self.head.seq - self.written.seq;
        self.buffer.clear();
        self.head = self.written;
        let end = match &error {
            RecordError::Write(_) if self.take_back().is_ok() => End::Clean,
            RecordError::Write(_) | RecordError::Sync(_) | RecordError::Closed => End::Doubtful,
        };
        for (pending, _) in self.waiting.drain(..) {
            pending.settle(Err(error.clone()));
        }
        self.failure.tell(&error);
        self.unsynced = None;
        self.broken = Some(Broken { error, end, lost, last_words: None });
    }

    /// Takes back what was written of a line, so that another may follow.
    fn take_back(&self) -> io::Result<()> {
        // A file that is not too long is left alone: to cut it would give its reserve away.
        if self.file.metadata()?.len() == self.written.bytes {
            return Ok(());
        }
        self.file.set_len(self.written.bytes)
    }

    /// Writes all that is not written yet.
    fn finish(&mut self) {
        self.write_repeats();
        self.flush();
    }

    fn close(&mut self) -> Result<Head, CloseError> {
        self.finish();
        if self.broken.is_none() {
            self.enter_end()?;
        }
        let Some(Broken { error, end, lost, last_words }) = self.broken.take() else {
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
            detail: format!("{lost} entries are missing: {error}{}", cause.unwrap_or_default()),
        });
        self.room.open_reserve();
        self.append(self.clock.now(), Actor::Ledger, &missing);
        if let Some(Observation { time, actor, event, .. }) = last_words {
            self.append(time, actor, &event);
        }
        self.flush();
        if self.broken.is_none() {
            // The caller hears of the first failure; an index that fails too is left to recovery.
            drop(self.enter_end());
        }
    }

    /// Enters the end in the index, and makes both durable at the same time.
    fn enter_end(&mut self) -> Result<(), CloseError> {
        let end = IndexEvent::RunClosed(Closed::from(self.written));
        let index = enter(&self.state, &self.run, &end, &self.clock).map_err(CloseError::Index)?;
        // Gives back the blocks reserved behind the end; a file that keeps them is whole as well.
        drop(self.file.set_len(self.written.bytes));
        let synced = thread::scope(|scope| {
            let syncing = thread::Builder::new().spawn_scoped(scope, || index.sync_data());
            self.sync();
            syncing.and_then(|syncing| joined(syncing.join()))
        });
        synced.map_err(CloseError::Sync)
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
