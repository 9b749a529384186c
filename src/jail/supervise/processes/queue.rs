//! The bounded queue. Who fills it never waits.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvro_sandbox::{MissedProcesses, ProcessSeen, StartedBy, WhyMissed};

use super::digest::{Digests, Source};

/// So much waits at most; with all arguments it is at most some 20 MB.
const MOST: usize = 4096;
/// How long more is waited for once something is there: the ledger is woken for many at a time.
const LULL: Duration = Duration::from_millis(50);

/// Something seen, and where the digest of its executable comes from.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) seen: ProcessSeen,
    pub(super) source: Option<Source>,
}

impl Queued {
    pub(super) fn new(mut seen: ProcessSeen, digests: &Digests) -> Self {
        let mut source = None;
        if let ProcessSeen::Started(started) = &mut seen
            && let StartedBy::Exec(program) = &mut started.by
        {
            source = program.file.take().and_then(|(file, facts)| digests.source(file, &facts));
        }
        Self { seen, source }
    }
}

/// Why something is missing from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Missed {
    /// It could not be seen.
    Unseen(MissedProcesses),
    /// The queue was full.
    StartTooFast,
    EndTooFast,
}

/// What was taken out at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) seen: Vec<Queued>,
    pub(super) missed: BTreeMap<Missed, u64>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.missed.is_empty()
    }

    fn miss(&mut self, missed: Missed) {
        *self.missed.entry(missed).or_default() += 1;
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Batch,
    closed: Option<Instant>,
}

impl Queue {
    /// Puts `queued` in, or counts it as missed.
    pub(super) fn push(&self, queued: Queued) {
        let mut state = self.lock();
        let was_empty = state.waiting.is_empty();
        let is_full = state.waiting.seen.len() >= MOST;
        match &queued.seen {
            ProcessSeen::Missed(missed) => state.waiting.miss(Missed::Unseen(*missed)),
            ProcessSeen::Started(_) if is_full => state.waiting.miss(Missed::StartTooFast),
            ProcessSeen::Exited(_) if is_full => state.waiting.miss(Missed::EndTooFast),
            ProcessSeen::Started(_) | ProcessSeen::Exited(_) => state.waiting.seen.push(queued),
        }
        // In between nobody is woken.
        if was_empty || state.waiting.seen.len() == MOST / 2 {
            self.changed.notify_one();
        }
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.lock().closed.get_or_insert_with(Instant::now);
        self.changed.notify_one();
    }

    pub(super) fn closed_since(&self) -> Option<Instant> {
        self.lock().closed
    }

    /// Waits for something and takes it; `None` when the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Batch> {
        let is_idle = |state: &mut State| state.waiting.is_empty() && state.closed.is_none();
        let waited = self.changed.wait_while(self.lock(), is_idle);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        let is_lull =
            |state: &mut State| state.waiting.seen.len() < MOST / 2 && state.closed.is_none();
        let waited = self.changed.wait_timeout_while(state, LULL, is_lull);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let batch = std::mem::take(&mut state.waiting);
        (!batch.is_empty()).then_some(batch)
    }

    /// The state is whole at every unlock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Missed {
    /// The event that there would be, and the stable code of why there is none.
    pub(super) const fn words(self) -> (&'static str, &'static str) {
        const START: &str = "process.started";
        const END: &str = "process.exited";
        match self {
            Self::StartTooFast => (START, "too_fast"),
            Self::EndTooFast => (END, "too_fast"),
            Self::Unseen(MissedProcesses::Start(why)) => (START, code(why)),
            Self::Unseen(MissedProcesses::End(why)) => (END, code(why)),
        }
    }
}

const fn code(why: WhyMissed) -> &'static str {
    match why {
        WhyMissed::Unconfirmed => "unconfirmed",
        WhyMissed::TooMany => "too_many",
        WhyMissed::Unreadable => "unreadable",
    }
}

#[cfg(test)]
mod tests {
    use kvro_sandbox::{ProcessEnd, ProcessExited};

    use super::*;

    fn exited(number: u64) -> Queued {
        let (end, at) = (ProcessEnd::Exited(0), Instant::now());
        let seen = ProcessSeen::Exited(ProcessExited { number, pid: 2, end, at });
        Queued { seen, source: None }
    }

    #[test]
    fn what_does_not_fit_is_counted_and_nothing_else_is_lost() {
        let queue = Queue::default();
        (0..10_000).for_each(|number| queue.push(exited(number)));
        let missed = ProcessSeen::Missed(MissedProcesses::Start(WhyMissed::TooMany));
        queue.push(Queued { seen: missed, source: None });
        queue.close();
        let batch = queue.take().unwrap();
        let numbers: Vec<u64> = batch
            .seen
            .iter()
            .filter_map(|queued| match &queued.seen {
                ProcessSeen::Exited(exited) => Some(exited.number),
                ProcessSeen::Started(_) | ProcessSeen::Missed(_) => None,
            })
            .collect();
        assert_eq!(numbers, (0..4096).collect::<Vec<_>>());
        let lost = Missed::Unseen(MissedProcesses::Start(WhyMissed::TooMany));
        assert_eq!(batch.missed, [(lost, 1), (Missed::EndTooFast, 5904)].into());
        assert!(queue.take().is_none());
    }
}
