//! A ledger in memory: the same recorder without a disk, for code that wants to see its events.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::receipt::Pending;
use crate::recorder::Failure;
use crate::{Actor, Event, RecordError};

/// The events of the recorder that [`crate::Recorder::to_memory`] made.
#[derive(Debug, Clone, Default)]
pub struct MemoryLedger(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    events: Mutex<Vec<(Actor, Event)>>,
    grown: Condvar,
    failure: Failure,
}

impl MemoryLedger {
    /// All events up to now, each one, repeated or not.
    #[must_use]
    pub fn events(&self) -> Vec<(Actor, Event)> {
        self.lock().clone()
    }

    /// Waits until `wanted` holds for an event and gives that event; `None` after `patience`.
    pub fn wait_for(
        &self,
        patience: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Option<(Actor, Event)> {
        let find = |events: &[(Actor, Event)]| events.iter().find(|(_, e)| wanted(e)).cloned();
        let (events, _) = self
            .0
            .grown
            .wait_timeout_while(self.lock(), patience, |events| find(events).is_none())
            .unwrap_or_else(PoisonError::into_inner);
        find(&events)
    }

    /// From now on the ledger is like one on a full disk: every record is refused.
    pub fn fill(&self) {
        let full = Arc::new(io::Error::from(io::ErrorKind::StorageFull));
        self.0.failure.tell(&RecordError::Write(full));
    }

    pub(crate) fn failure(&self) -> &Failure {
        &self.0.failure
    }

    pub(crate) fn push(&self, actor: Actor, event: Event, pending: Option<Pending>) {
        let result = match self.0.failure.first() {
            Some(error) => Err(error),
            None => {
                let mut events = self.lock();
                events.push((actor, event));
                self.0.grown.notify_all();
                Ok(events.len() as u64)
            }
        };
        if let Some(pending) = pending {
            pending.settle(result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Actor, Event)>> {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
