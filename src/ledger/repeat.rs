//! Repetitions: a refusal is written when it first happens, then counted.
//!
//! An agent that asks for the same thing a hundred thousand times would otherwise fill the disk
//! with one fact. Every count is written at the latest [`INTERVAL`] after it began and when the
//! ledger closes, so that one and the counts add up to what happened. The memory is bounded: a
//! subject that was not seen for long enough is written out and forgotten, and counts as new when
//! it comes back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::event::{
    DnsRefused, EgressAttempted, EgressDenied, HiddenExposed, HiddenOpened, InferenceRefused,
    NameRefused, Repeated, UpstreamFailed,
};
use crate::{Actor, Event};

/// A count is held back this long at most.
const INTERVAL: Duration = Duration::from_secs(5);
/// Half of the subjects that are remembered.
const GENERATION: usize = 2048;

/// What has to be equal for one event to repeat another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    actor: Actor,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum What {
    Hidden(HiddenOpened),
    Name(NameRefused),
    Exposed(HiddenExposed),
    Dns(DnsRefused),
    Denied(EgressDenied),
    Attempted(EgressAttempted),
    Inference(InferenceRefused),
    Upstream(UpstreamFailed),
}

impl Subject {
    /// The subject of an event whose repetitions are counted.
    pub(crate) fn of(actor: Actor, event: &Event) -> Option<Self> {
        let what = match event {
            Event::HiddenOpened(data) => What::Hidden(data.clone()),
            Event::HiddenExposed(data) => What::Exposed(data.clone()),
            Event::NameRefused(data) => What::Name(data.clone()),
            Event::DnsRefused(data) => What::Dns(data.clone()),
            Event::EgressDenied(data) => What::Denied(data.clone()),
            // A loop in a shell tries each time from a new process.
            Event::EgressAttempted(data) => {
                What::Attempted(EgressAttempted { pid: None, ..data.clone() })
            }
            Event::InferenceRefused(data) => What::Inference(data.clone()),
            Event::UpstreamFailed(data) => What::Upstream(data.clone()),
            Event::RunStarted(_)
            | Event::RunEnded(_)
            | Event::IsolationApplied(_)
            | Event::IsolationDegraded(_)
            | Event::Quarantined(_)
            | Event::DnsAnswered(_)
            | Event::EgressAllowed(_)
            | Event::EgressClosed(_)
            | Event::DoorOpened(_)
            | Event::DoorFailed(_)
            | Event::InferenceRequested(_)
            | Event::InferenceSettled(_)
            | Event::InferenceAborted(_)
            | Event::BudgetReserved(_)
            | Event::BudgetWarned(_)
            | Event::LimitReached(_)
            | Event::KillRequested(_)
            | Event::KillCompleted(_)
            | Event::ProcessStarted(_)
            | Event::ProcessExited(_)
            | Event::RecordingMissed(_)
            | Event::AlertRaised(_)
            | Event::LedgerRecovered(_)
            | Event::Repeated(_) => return None,
        };
        Some(Self { actor, what })
    }
}

/// Repetitions of one subject that are not written yet.
#[derive(Debug, Clone, Copy)]
struct Tally {
    of_seq: u64,
    count: u64,
    last: Timestamp,
}

impl Tally {
    fn take(&mut self) -> Option<Repeated> {
        let Self { of_seq, count, last } = *self;
        self.count = 0;
        (count > 0).then(|| Repeated { of_seq, count, last: format!("{last:.9}") })
    }
}

/// The subjects seen lately.
///
/// Two generations stand in for an order of use: the young one grows, and when it is full the old
/// one is written out and the young one takes its place.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    young: HashMap<Subject, Tally>,
    old: HashMap<Subject, Tally>,
    due: Option<Instant>,
}

impl Repeats {
    /// Counts `subject` if it is a repetition.
    pub(crate) fn count(&mut self, subject: &Subject, time: Timestamp, now: Instant) -> Seen {
        if let Some((subject, tally)) = self.old.remove_entry(subject) {
            self.young.insert(subject, tally);
        }
        let Some(tally) = self.young.get_mut(subject) else {
            return Seen::First;
        };
        tally.count += 1;
        tally.last = time;
        self.due.get_or_insert(now + INTERVAL);
        Seen::Counted
    }

    /// Remembers that `subject` was written as `seq`; gives the counts of those it pushes out.
    pub(crate) fn remember(
        &mut self,
        subject: Subject,
        seq: u64,
        time: Timestamp,
    ) -> Vec<Repeated> {
        let displaced = if self.young.len() >= GENERATION {
            std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
        } else {
            HashMap::new()
        };
        self.young.insert(subject, Tally { of_seq: seq, count: 0, last: time });
        in_order(displaced.into_values().filter_map(|mut tally| tally.take()))
    }

    /// When [`Self::take`] is to be called next.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// All counts that are not written yet.
    pub(crate) fn take(&mut self) -> Vec<Repeated> {
        self.due = None;
        in_order(self.young.values_mut().chain(self.old.values_mut()).filter_map(Tally::take))
    }
}

/// Whether an event is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    First,
    Counted,
}

/// A map has no order of its own, and a ledger should not depend on one.
fn in_order(repeats: impl Iterator<Item = Repeated>) -> Vec<Repeated> {
    let mut repeats: Vec<Repeated> = repeats.collect();
    repeats.sort_unstable_by_key(|repeated| repeated.of_seq);
    repeats
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Timestamp = Timestamp::UNIX_EPOCH;

    fn hidden(path: impl ToString) -> Subject {
        let event = Event::HiddenOpened(HiddenOpened { path: path.to_string() });
        Subject::of(Actor::Guard, &event).unwrap()
    }

    fn repeated(of_seq: u64, count: u64) -> Repeated {
        Repeated { of_seq, count, last: "1970-01-01T00:00:00.000000000Z".to_owned() }
    }

    #[test]
    fn a_count_is_written_once_and_starts_again() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        assert_eq!(repeats.count(&hidden(".env"), TIME, now), Seen::First);
        assert_eq!(repeats.remember(hidden(".env"), 7, TIME), []);
        assert_eq!(repeats.due(), None);
        for _ in 0..3 {
            assert_eq!(repeats.count(&hidden(".env"), TIME, now), Seen::Counted);
        }
        assert_eq!(repeats.due(), Some(now + INTERVAL));
        assert_eq!(repeats.take(), [repeated(7, 3)]);
        assert_eq!((repeats.take(), repeats.due()), (vec![], None));
        assert_eq!(repeats.count(&hidden(".env"), TIME, now), Seen::Counted);
        assert_eq!(repeats.take(), [repeated(7, 1)]);
    }

    #[test]
    fn an_attempt_repeats_another_process_attempt() {
        let attempt = |port, pid| {
            let event = Event::EgressAttempted(EgressAttempted {
                server: "192.0.2.1".to_owned(),
                port,
                transport: "tcp".to_owned(),
                pid: Some(pid),
                command: Some("curl".to_owned()),
            });
            Subject::of(Actor::Sandbox, &event)
        };
        assert_eq!(attempt(81, 4), attempt(81, 5));
        assert_ne!(attempt(81, 4), attempt(82, 4));
    }

    #[test]
    fn a_flood_of_subjects_loses_no_count_and_fills_no_memory() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let (mut written, mut counted, mut seq) = (0, 0, 0);
        for round in 0..3_u64 {
            for path in 0..10_000_u64 {
                // Each path twice in a row, and all again in the next round.
                for _ in 0..2 {
                    if repeats.count(&hidden(path), TIME, now) == Seen::First {
                        (written, seq) = (written + 1, seq + 1);
                        let out = repeats.remember(hidden(path), seq, TIME);
                        counted += out.iter().map(|repeated| repeated.count).sum::<u64>();
                    }
                }
                assert!(repeats.young.len() + repeats.old.len() <= 2 * GENERATION, "{round}");
            }
        }
        counted += repeats.take().iter().map(|repeated| repeated.count).sum::<u64>();
        assert_eq!(written + counted, 3 * 10_000 * 2);
    }
}
