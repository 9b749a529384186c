//! Receipts: how a caller learns that its entry is durable, whether it waits or awaits.
//!
//! A plain future over a mutex, so that this crate needs no runtime and the door needs no thread.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::RecordError;

/// Resolves to an entry's sequence number once the entry is durable.
///
/// Await it, or call [`Receipt::wait`] where there is no runtime. Dropping it waits for nothing:
/// the entry is written all the same.
#[derive(Debug)]
#[must_use = "what an entry releases may only happen once its receipt resolves"]
pub struct Receipt(Arc<Slot>);

/// The other end: whoever makes the entry durable settles it. Dropped unsettled, it is `Closed`.
#[derive(Debug)]
pub(crate) struct Pending(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Open,
    Awaited(Waker),
    Settled(Result<u64, RecordError>),
}

pub(crate) fn receipt() -> (Pending, Receipt) {
    let slot = Arc::new(Slot::default());
    (Pending(Arc::clone(&slot)), Receipt(slot))
}

impl Receipt {
    /// Blocks until the entry is durable, or cannot be.
    pub fn wait(self) -> Result<u64, RecordError> {
        let mut state = self.0.lock();
        loop {
            if let State::Settled(result) = &*state {
                return result.clone();
            }
            state = self.0.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Receipt {
    type Output = Result<u64, RecordError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        if let State::Settled(result) = &*state {
            return Poll::Ready(result.clone());
        }
        *state = State::Awaited(cx.waker().clone());
        Poll::Pending
    }
}

impl Pending {
    pub(crate) fn settle(self, result: Result<u64, RecordError>) {
        self.0.settle(result);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.settle(Err(RecordError::Closed));
    }
}

impl Slot {
    /// A slot holds plain values, so a panic elsewhere leaves nothing half done in it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first result stays.
    fn settle(&self, result: Result<u64, RecordError>) {
        let mut state = self.lock();
        let before = match &*state {
            State::Settled(_) => return,
            State::Open | State::Awaited(_) => {
                std::mem::replace(&mut *state, State::Settled(result))
            }
        };
        drop(state);
        self.settled.notify_all();
        if let State::Awaited(waker) = before {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_settled_receipt_wakes_its_task_and_resolves() {
        let (pending, mut receipt) = receipt();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut receipt).poll(&mut cx).is_pending());
        pending.settle(Ok(7));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(matches!(Pin::new(&mut receipt).poll(&mut cx), Poll::Ready(Ok(7))));
    }

    #[test]
    fn a_waiting_thread_learns_that_the_writer_is_gone() {
        let (pending, receipt) = receipt();
        let waiting = std::thread::spawn(move || receipt.wait());
        drop(pending);
        assert!(matches!(waiting.join().unwrap(), Err(RecordError::Closed)));
    }
}
