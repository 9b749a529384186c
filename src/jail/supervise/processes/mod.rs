//! The record of processes, on its way from the watching thread to the ledger.
//!
//! Processes of the jail wait while they are looked at, so nothing slow may happen there: what was
//! seen goes into a bounded queue, and a thread of its own reads executables, makes events of it
//! and records them. What the queue cannot hold is counted, and the count is an event.

mod digest;
mod kept;
mod queue;
mod words;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use kvro_ledger::{Actor, Clock, Event, Recorder, StateDir};
use kvro_sandbox::ProcessSeen;

use digest::Digests;
use kept::Kept;
use queue::{Batch, Queue, Queued};

/// Records processes for as long as it lives.
#[derive(Debug)]
pub(super) struct ProcessRecord {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl ProcessRecord {
    /// Starts the record; the processes are to be told to what comes with it, which never blocks.
    pub(super) fn start(
        recorder: Recorder,
        clock: Clock,
        state: &StateDir,
    ) -> io::Result<(Self, impl Fn(ProcessSeen) + Send + use<>)> {
        let (queue, digests) = (Arc::new(Queue::default()), Arc::new(Digests::default()));
        let tell = {
            let (queue, digests) = (Arc::clone(&queue), Arc::clone(&digests));
            move |seen| queue.push(Queued::new(seen, &digests))
        };
        let write = {
            let (queue, kept) = (Arc::clone(&queue), Kept::beside(state));
            move || {
                digests.load(&kept);
                while let Some(batch) = queue.take() {
                    let end = || queue.closed_since();
                    write(batch, &recorder, &clock, |source| digests.resolve(source, end));
                }
                digests.save(&kept, clock.now());
            }
        };
        let thread = thread::Builder::new().name("processes".to_owned()).spawn(write)?;
        Ok((Self { queue, thread: Some(thread) }, tell))
    }

    /// Waits until everything that was told is with the ledger.
    pub(super) fn finish(mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to record.
            drop(thread.join());
        }
    }
}

impl Drop for ProcessRecord {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn write(
    batch: Batch,
    recorder: &Recorder,
    clock: &Clock,
    resolve: impl Fn(digest::Source) -> Option<String>,
) {
    let now = (clock.now(), Instant::now());
    let started = batch.seen.into_iter().filter_map(|Queued { seen, source }| {
        let sha256 = source.and_then(&resolve);
        words::event(seen, sha256, now)
    });
    let missed = batch.missed.into_iter().map(|(missed, count)| words::missed(missed, count));
    for event in started.chain(missed.map(Event::RecordingMissed)) {
        recorder.record(Actor::Sandbox, event);
    }
}
