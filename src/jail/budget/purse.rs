//! The gate of a session: judges each call by the ceilings, and holds what it may cost.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use kvro_ledger::event::{BudgetReserved, BudgetWarned, CallKind, LimitReached};
use kvro_ledger::{Actor, Event, PicoUsd, Recorder};
use kvro_proxy::gate::{
    Account, Ask, Gate, Outcome, Patience, Permit, Refusal, Reservation, Settlement,
};
use kvro_proxy::price::PriceTable;

use super::account::{Books, Used, Warning};
use super::bound::{Unbounded, Unpriced, bound};
use super::words;
use crate::limits::{Limits, OnLimit, UnknownPrice};

/// Ends the process tree. Called from the threads that judge calls; must not block.
pub trait KillSwitch: Send + Sync + fmt::Debug {
    /// The first call was refused at a ceiling whose policy is to end the run.
    fn limit_reached(&self, limit: &str, message: &str);
    /// One more was refused after that: whoever asks does not stop by itself.
    fn refused_again(&self);
    /// A ceiling is near; said once for each percentage.
    fn warned(&self, words: &str);
}

/// A run's ceilings and what is left below them.
#[derive(Debug)]
pub struct Budget {
    purse: Arc<Purse>,
}

#[derive(Debug)]
struct Purse {
    limits: Limits,
    /// Read at the first call: most commands make none.
    prices: LazyPrices,
    recorder: Recorder,
    kill: Arc<dyn KillSwitch>,
    books: Mutex<Books>,
    /// All that the ledger says may have been spent. Its own lock, since it is held while the disk
    /// is waited for.
    durable: Mutex<PicoUsd>,
}

/// A price table that is made when it is first asked.
struct LazyPrices(LazyLock<PriceTable, Box<dyn FnOnce() -> PriceTable + Send>>);

impl fmt::Debug for LazyPrices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyPrices").finish_non_exhaustive()
    }
}

/// Whether a refusal is the first at its ceiling, and so worth an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    Now,
    Before,
}

impl Budget {
    #[must_use]
    pub fn new(
        limits: Limits,
        prices: impl FnOnce() -> PriceTable + Send + 'static,
        recorder: Recorder,
        kill: Arc<dyn KillSwitch>,
    ) -> Self {
        let (books, durable) = (Mutex::default(), Mutex::default());
        let prices = LazyPrices(LazyLock::new(Box::new(prices)));
        Self { purse: Arc::new(Purse { limits, prices, recorder, kill, books, durable }) }
    }

    /// What was used up to now.
    #[must_use]
    pub fn used(&self) -> Used {
        self.purse.books().used()
    }
}

impl Gate for Budget {
    fn admit(&self, ask: &Ask) -> Result<Permit, Refusal> {
        let purse = &self.purse;
        let mut books = purse.books();
        let reservation = match purse.judge(&books, ask) {
            Ok(reservation) => reservation,
            Err(refusal) => {
                let reached = purse.follow(&mut books, &refusal);
                drop(books);
                if reached == Reached::Now {
                    purse.record_reached(&refusal);
                }
                return Err(refusal);
            }
        };
        books.hold(&reservation);
        let committed = books.committed();
        drop(books);
        if let Some(ceiling) = purse.limits.max_usd
            && !purse.make_durable(committed, ceiling)
        {
            purse.books().release(&reservation);
            return Err(words::unrecorded());
        }
        let account: Arc<dyn Account> = Arc::<Purse>::clone(purse);
        Ok(Permit::new(account, reservation))
    }

    fn patience(&self) -> Patience {
        // Only money is made durable ahead.
        match self.purse.limits.max_usd {
            Some(_) => Patience::Disk,
            None => Patience::None,
        }
    }
}

impl Account for Purse {
    fn settle(&self, reservation: &Reservation, outcome: &Outcome) -> Settlement {
        let mut books = self.books();
        let settlement = books.settle(&self.prices.0, reservation, outcome);
        let warnings = books.warnings(&self.limits);
        drop(books);
        warnings.into_iter().for_each(|warning| self.warn(warning));
        settlement
    }
}

impl Purse {
    fn judge(&self, books: &Books, ask: &Ask) -> Result<Reservation, Refusal> {
        let limits = &self.limits;
        if let Some(refusal) = &books.ended {
            return Err(refusal.clone());
        }
        if let Some(ceiling) = limits.max_turns
            && ask.kind == CallKind::Turn
            && books.turns() >= ceiling
        {
            return Err(words::turns(books.turns(), ceiling));
        }
        if let Some(ceiling) = limits.max_context_tokens
            && ask.kind == CallKind::Turn
        {
            // What the last turn filled is still there; what this request brings is there already.
            let context = books.context.max(ask.context_at_least);
            if books.context >= ceiling || ask.context_at_least > ceiling {
                return Err(words::context(context, ceiling));
            }
        }
        if let Some(ceiling) = limits.max_tokens
            && books.tokens() >= ceiling
        {
            return Err(words::tokens(books.tokens(), ceiling));
        }
        let unpriced = match limits.unknown_price {
            UnknownPrice::Allow => Unpriced::Admitted,
            UnknownPrice::Deny => Unpriced::Refused,
        };
        let price = self.prices.0.price(&ask.model);
        let bound = bound(ask, price, books.room(limits), unpriced)
            .map_err(|why: Unbounded| words::unbounded(why, ask, books, limits))?;
        Ok(Reservation {
            model: ask.model.clone(),
            kind: ask.kind,
            cost: bound.cost,
            input: bound.input,
            output: bound.output,
            output_limit: bound.output_limit,
        })
    }

    /// Pulls the switch as `refusal` asks; only ceilings lead anywhere. Says whether a ceiling was
    /// reached for the first time.
    ///
    /// Under the lock, so that two refusals at once reach the switch in their order.
    fn follow(&self, books: &mut Books, refusal: &Refusal) -> Reached {
        if books.ended.is_some() {
            self.kill.refused_again();
            return Reached::Before;
        }
        if !["max_turns", "max_usd", "max_tokens", "max_context_tokens"].contains(&refusal.limit) {
            return Reached::Before;
        }
        match self.limits.on_limit {
            OnLimit::Kill => {
                books.ended = Some(refusal.clone());
                self.kill.limit_reached(refusal.limit, &refusal.message);
                Reached::Now
            }
            OnLimit::Deny if books.reached.insert(refusal.limit) => Reached::Now,
            OnLimit::Deny => Reached::Before,
        }
    }

    fn record_reached(&self, refusal: &Refusal) {
        let reached = LimitReached {
            limit: refusal.limit.to_owned(),
            used: refusal.used.clone(),
            ceiling: refusal.ceiling.clone(),
        };
        self.recorder.record(Actor::Meter, Event::LimitReached(reached));
    }

    /// Has the ledger say that `committed` may be spent, before it can be; in slices, since every
    /// call would otherwise wait for the disk. Whether it does say so.
    fn make_durable(&self, committed: PicoUsd, ceiling: PicoUsd) -> bool {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if committed <= *durable {
            return true;
        }
        let tenth = PicoUsd::new(ceiling.pico() / 10);
        // No slice reaches past the ceiling unless the calls in flight do.
        let through = (*durable + tenth).min(ceiling).max(committed);
        let slice = through.saturating_sub(*durable);
        let event = BudgetReserved { slice_usd: slice, through_usd: through };
        let recorded = self.recorder.record_durably(Actor::Meter, Event::BudgetReserved(event));
        if recorded.is_ok() {
            *durable = through;
        }
        recorded.is_ok()
    }

    fn warn(&self, warning: Warning) {
        let standing = &warning.standing;
        let words = format!(
            "{} % of {} is used: {} of {}",
            warning.percent, standing.limit, standing.used, standing.ceiling
        );
        self.kill.warned(&words);
        let warned = BudgetWarned {
            limit: warning.standing.limit.to_owned(),
            percent: warning.percent,
            used: warning.standing.used,
            ceiling: warning.standing.ceiling,
        };
        self.recorder.record(Actor::Meter, Event::BudgetWarned(warned));
    }

    /// The books are whole at every unlock, so a panic elsewhere leaves nothing half done in them.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
