//! What everyone who observes something holds: a cheap handle that turns events into entries.
//!
//! Recording never fails silently. An entry that cannot be written is an error for whoever waits
//! for it, and the first such error is told to those who watch, so that the run can be stopped
//! rather than go on unrecorded.

use std::fmt;
use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::memory::MemoryLedger;
use crate::receipt::{self, Pending, Receipt};
use crate::{Actor, Clock, CloseError, Event, Head};

/// Why an entry is not on record.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecordError {
    #[error("cannot write the ledger")]
    Write(#[source] Arc<io::Error>),
    /// The disk may have lost what was written before; nothing can be trusted behind this.
    #[error("cannot sync the ledger")]
    Sync(#[source] Arc<io::Error>),
    #[error("the ledger is closed")]
    Closed,
}

/// Records events. Clones write to the same ledger.
#[derive(Debug, Clone)]
pub struct Recorder {
    sink: Sink,
}

#[derive(Debug, Clone)]
enum Sink {
    Writer { inbox: SyncSender<Message>, clock: Clock, failure: Failure },
    Memory(MemoryLedger),
}

/// What the writer is sent.
#[derive(Debug)]
pub(crate) enum Message {
    Record(Box<Observation>),
    Close(CloseReply),
}

/// Where the writer says how the close went.
pub(crate) type CloseReply = SyncSender<Result<Head, CloseError>>;

/// An event on its way into the chain.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) time: Timestamp,
    pub(crate) actor: Actor,
    pub(crate) event: Event,
    /// Somebody waits until it is durable.
    pub(crate) pending: Option<Pending>,
}

impl Recorder {
    pub(crate) const fn new(inbox: SyncSender<Message>, clock: Clock, failure: Failure) -> Self {
        Self { sink: Sink::Writer { inbox, clock, failure } }
    }

    /// A recorder that keeps its events in memory, for those who want to look at them.
    #[must_use]
    pub fn to_memory() -> (Self, MemoryLedger) {
        let memory = MemoryLedger::default();
        (Self { sink: Sink::Memory(memory.clone()) }, memory)
    }

    /// Records `event`. It is durable within about a second, and when the ledger is closed.
    ///
    /// Blocks only while the writer is more than a thousand events behind. Refusals that repeat
    /// are counted instead of written again. An event that cannot be written is counted as lost,
    /// and [`Self::failure`] says so.
    pub fn record(&self, actor: Actor, event: Event) {
        self.send(actor, event, None);
    }

    /// Records `event` and blocks until it is durable; gives its sequence number.
    ///
    /// Not for async code: that awaits [`Self::durable`].
    pub fn record_durably(&self, actor: Actor, event: Event) -> Result<u64, RecordError> {
        self.durable(actor, event).wait()
    }

    /// Records `event`; the receipt resolves once it is durable.
    pub fn durable(&self, actor: Actor, event: Event) -> Receipt {
        let (pending, receipt) = receipt::receipt();
        self.send(actor, event, Some(pending));
        receipt
    }

    /// The error after which nothing is recorded any more, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<RecordError> {
        match &self.sink {
            Sink::Writer { failure, .. } => failure.first(),
            Sink::Memory(memory) => memory.failure().first(),
        }
    }

    /// Calls `tell` once, when the ledger first cannot be written; at once if that was already.
    ///
    /// It runs on the writer's thread and must not block.
    pub fn on_failure(&self, tell: impl FnOnce(&RecordError) + Send + 'static) {
        match &self.sink {
            Sink::Writer { failure, .. } => failure.watch(Box::new(tell)),
            Sink::Memory(memory) => memory.failure().watch(Box::new(tell)),
        }
    }

    fn send(&self, actor: Actor, event: Event, pending: Option<Pending>) {
        match &self.sink {
            Sink::Writer { inbox, clock, failure } => {
                let time = clock.now();
                let observation = Box::new(Observation { time, actor, event, pending });
                // A closed inbox drops the receipt, which tells whoever waits.
                if inbox.send(Message::Record(observation)).is_err() {
                    failure.tell(&RecordError::Closed);
                }
            }
            Sink::Memory(memory) => memory.push(actor, event, pending),
        }
    }
}

/// The first error that stopped the record, and who wants to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<FailureState>>);

type Watcher = Box<dyn FnOnce(&RecordError) + Send>;

#[derive(Default)]
struct FailureState {
    first: Option<RecordError>,
    watchers: Vec<Watcher>,
}

impl fmt::Debug for FailureState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureState").field("first", &self.first).finish_non_exhaustive()
    }
}

impl Failure {
    pub(crate) fn first(&self) -> Option<RecordError> {
        self.lock().first.clone()
    }

    /// Tells the watchers, unless there was an error before.
    pub(crate) fn tell(&self, error: &RecordError) {
        let mut state = self.lock();
        if state.first.is_some() {
            return;
        }
        state.first = Some(error.clone());
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        watchers.into_iter().for_each(|tell| tell(error));
    }

    fn watch(&self, tell: Watcher) {
        let mut state = self.lock();
        match state.first.clone() {
            None => state.watchers.push(tell),
            Some(error) => {
                drop(state);
                tell(&error);
            }
        }
    }

    /// The state is whole at every unlock, so a panic elsewhere leaves nothing half done in it.
    fn lock(&self) -> MutexGuard<'_, FailureState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
