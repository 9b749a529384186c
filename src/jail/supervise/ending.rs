//! The decision to end a run: made once, by whoever comes first.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvro_ledger::event::EndedBy;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::failure;

/// How long an agent may go on after its first refusal: clients retry, loop and exit 0.
const AFTER_REFUSAL: Duration = Duration::from_secs(2);

/// Why a run is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A ceiling was reached.
    Limit(String),
    /// Wall time is over.
    Wall(String),
    /// The policy ended it.
    Policy(String),
    /// The supervisor cannot go on.
    Failure(String),
    /// Somebody asked for it.
    User(String),
}

impl Cause {
    #[must_use]
    pub fn ended_by(&self) -> EndedBy {
        match self {
            Self::Limit(_) => EndedBy::Limit,
            Self::Wall(_) => EndedBy::Wall,
            Self::Policy(_) => EndedBy::Policy,
            Self::Failure(_) => EndedBy::Failure,
            Self::User(_) => EndedBy::User,
        }
    }

    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Limit(reason)
            | Self::Wall(reason)
            | Self::Policy(reason)
            | Self::Failure(reason)
            | Self::User(reason) => reason,
        }
    }

    /// The exit code; `None` for the user's own wish, where the command's end decides.
    #[must_use]
    pub fn code(&self) -> Option<u8> {
        match self {
            Self::Limit(_) => Some(failure::LIMIT),
            Self::Wall(_) => Some(failure::WALL),
            Self::Policy(_) => Some(failure::POLICY),
            Self::Failure(_) => Some(failure::FAILED),
            Self::User(_) => None,
        }
    }
}

/// Where an end is asked for, from any thread. The first cause stands.
#[derive(Debug, Clone, Default)]
pub struct EndRequests(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: Mutex<Option<Asked>>,
    changed: Notify,
}

#[derive(Debug, Clone)]
struct Asked {
    cause: Cause,
    due: Instant,
}

impl EndRequests {
    /// Asks for the end now.
    pub fn now(&self, cause: Cause) {
        self.ask(cause, Instant::now());
    }

    /// A ceiling refused a call: the end comes in two seconds, or with the next refusal.
    pub fn soon(&self, cause: Cause) {
        self.ask(cause, Instant::now() + AFTER_REFUSAL);
    }

    /// An end that was asked for comes now.
    pub fn hurry(&self) {
        if let Some(asked) = self.lock().as_mut() {
            asked.due = asked.due.min(Instant::now());
        }
        self.0.changed.notify_one();
    }

    /// The cause, whether its time has come or not.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.lock().as_ref().map(|asked| asked.cause.clone())
    }

    /// Waits until the end is due.
    pub async fn due(&self) -> Cause {
        loop {
            let asked = self.lock().clone();
            let changed = self.0.changed.notified();
            match asked {
                None => changed.await,
                Some(asked) if asked.due <= Instant::now() => return asked.cause,
                Some(asked) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(asked.due) => {}
                    }
                }
            }
        }
    }

    fn ask(&self, cause: Cause, due: Instant) {
        let mut asked = self.lock();
        match asked.as_mut() {
            // A failure must not wait for the grace that a refusal leaves.
            Some(first) => first.due = first.due.min(due),
            None => *asked = Some(Asked { cause, due }),
        }
        drop(asked);
        self.0.changed.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Asked>> {
        // Nothing in here can panic half way.
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Cause {
        Cause::Limit("max_turns".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_cause_stands() {
        let ends = EndRequests::default();
        ends.now(limit());
        ends.now(Cause::User("asked".to_owned()));
        assert_eq!(ends.due().await, limit());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_leaves_two_seconds_and_the_next_one_none() {
        let (ends, start) = (EndRequests::default(), Instant::now());
        ends.soon(limit());
        assert_eq!(ends.due().await, limit());
        assert_eq!(start.elapsed(), AFTER_REFUSAL);

        let (ends, start) = (EndRequests::default(), Instant::now());
        ends.soon(limit());
        ends.hurry();
        assert_eq!(ends.due().await, limit());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_does_not_wait_for_the_grace_of_a_refusal() {
        let (ends, start) = (EndRequests::default(), Instant::now());
        ends.soon(limit());
        ends.now(Cause::Failure("the door".to_owned()));
        assert_eq!(ends.due().await, limit());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
