//! The one choke point of money: every billable call passes `Gate::admit` before it leaves.
//!
//! This file says what is asked, granted and reported. Ceilings, prices and the kill switch live
//! behind the trait, in the crate that runs the session; nothing here knows a limit.
//!
//! Why a permit settles itself when dropped: an agent that hangs up in the middle of an answer
//! cancels the future that serves it, and what the provider bills for must not go with it.

use std::fmt;
use std::sync::Arc;

use kvro_ledger::PicoUsd;
use kvro_ledger::event::{Basis, CallKind, Cost, TokenUsage};

use crate::inference::Provider;

/// Judges billable calls before they leave.
pub trait Gate: Send + Sync + fmt::Debug {
    /// Reserves what `ask` may cost at most; a refusal names the ceiling.
    ///
    /// May wait for the disk, so it is called where blocking is allowed.
    fn admit(&self, ask: &Ask) -> Result<Permit, Refusal>;

    /// Whether [`Gate::admit`] may wait, and so needs a thread of its own.
    fn patience(&self) -> Patience;
}

/// How long a judgement may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It only computes.
    None,
    /// It may wait for the disk.
    Disk,
}

/// What a billable call may come to, as far as its request can prove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub provider: Provider,
    /// The name asked for, as it was written.
    pub model: String,
    /// What the call counts as once the provider accepts it.
    pub kind: CallKind,
    pub input: InputBound,
    pub output: OutputAsk,
    pub terms: AskedTerms,
    /// Tokens of context that the request carries for certain: a lower estimate.
    pub context_at_least: u64,
}

/// The most input that a call can be billed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputBound {
    /// Text is bounded by its bytes, since a token covers at least one.
    Tokens(u64),
    /// Something whose size the request does not show (a stored file, an earlier answer): each step
    /// is bounded by the model's context window, and there are at most this many steps.
    Windows(u64),
    /// Nothing bounds it; the reason is said to the user.
    Unbounded(&'static str),
}

/// What a call asks for as output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputAsk {
    /// The limit that the request sets; `None` where it sets none.
    pub limit: Option<u64>,
    /// A lower limit than this would make the request invalid.
    pub floor: u64,
    pub adjust: Adjust,
    /// Answers asked for at once; each may use the whole limit.
    pub answers: u64,
    /// Billed as output on top of the limit (rejected predictions).
    pub extra: u64,
}

/// Whether a limit can be put into the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adjust {
    Allowed,
    /// The operation takes no limit; the model's own bounds the answer.
    Fixed,
    /// The operation generates nothing.
    NoOutput,
}

/// Modifiers of the price that the request may lead to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedTerms {
    pub tier: AskedTier,
    pub speed: Speed,
    pub cache: AskedCache,
    /// Fees: searches that the provider may run for the call.
    pub web_searches: u64,
}

/// Which service tiers the provider may serve the call at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AskedTier {
    /// The request does not exclude a dearer one.
    #[default]
    Any,
    /// The request says that the standard tier or a cheaper one serves it.
    Standard,
}

/// Whether input may be billed at the price of writing it to a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AskedCache {
    /// The request asks for no cache, and the provider has none of its own accord.
    Never,
    Short,
    #[default]
    Long,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Speed {
    #[default]
    Standard,
    Fast,
}

/// What was held back for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub model: String,
    pub kind: CallKind,
    /// The most the call can cost; `None` when no price bounds it.
    pub cost: Option<PicoUsd>,
    /// The most input tokens; `None` when nothing bounds them.
    pub input: Option<u64>,
    /// The most output tokens over all answers; `None` when nothing bounds them.
    pub output: Option<u64>,
    /// The output limit that must be sent upstream for the reservation to hold; `None` leaves the
    /// request as it is.
    pub output_limit: Option<u64>,
}

/// Proof that a call was judged and paid for; only a gate makes one.
#[must_use = "a permit dropped unsettled is charged in full"]
#[derive(Debug)]
pub struct Permit {
    reservation: Reservation,
    account: Arc<dyn Account>,
    /// What its drop is taken for; `None` once it is settled.
    dropped: Option<Outcome>,
}

/// Where permits are settled; a gate's other half.
pub trait Account: Send + Sync + fmt::Debug {
    /// Gives back `reservation` and charges what `outcome` says. Never waits for the disk.
    fn settle(&self, reservation: &Reservation, outcome: &Outcome) -> Settlement;
}

impl Permit {
    pub fn new(account: Arc<dyn Account>, reservation: Reservation) -> Self {
        Self { reservation, account, dropped: Some(Outcome::Unknown) }
    }

    /// The call waits at the door: dropped now, the permit gives its money back.
    pub(crate) fn hold(mut self) -> Self {
        self.dropped = Some(Outcome::Rejected);
        self
    }

    /// The call leaves: dropped from here on, the permit is charged in full.
    pub(crate) fn leave(mut self) -> Self {
        self.dropped = Some(Outcome::Unknown);
        self
    }

    #[must_use]
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Pays for the call.
    pub fn settle(mut self, outcome: &Outcome) -> Settlement {
        self.dropped = None;
        self.account.settle(&self.reservation, outcome)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(outcome) = self.dropped.take() {
            self.account.settle(&self.reservation, &outcome);
        }
    }
}

/// How a call ended, for the purse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider refused the call and billed nothing.
    Rejected,
    /// The provider accepted the call and said what it used.
    Reported(Usage),
    /// The provider refused the call, yet says that it used something.
    RejectedAt(Usage),
    /// The call was accepted and the report stops before its end: the input side is what was said,
    /// the output is at least that.
    Partial(Usage),
    /// Nothing trustworthy was said.
    Unknown,
}

/// What a provider reported for one call, in disjoint kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The model that answered, where it was said.
    pub model: Option<String>,
    pub tokens: TokenUsage,
    /// Input side of the last generation step.
    pub context_tokens: u64,
    pub terms: ServedTerms,
    /// Generations inside this call that `tokens` leaves out.
    pub others: Vec<Side>,
    pub fees: Fees,
}

/// A generation inside a call, billed beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Priced as the call's own model where none is named.
    pub model: Option<String>,
    pub tokens: TokenUsage,
}

/// Whether the provider may charge for something that no price is known for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fees {
    #[default]
    Listed,
    Unlisted,
}

impl Usage {
    /// All tokens that are billed, whoever generated them.
    #[must_use]
    pub fn total(&self) -> TokenUsage {
        self.others.iter().fold(self.tokens, |sum, side| add(sum, side.tokens))
    }
}

/// The terms at which a call was served: these price it, not the asked ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedTerms {
    pub tier: Option<String>,
    pub speed: Option<String>,
    pub geo: Option<String>,
}

/// What a settled call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub kind: CallKind,
    pub cost: Cost,
    pub basis: Basis,
}

/// The call that would have crossed a ceiling, or that no bound can be given for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A stable code: `max_turns`, `max_usd`, `unknown_price`, …
    pub limit: &'static str,
    pub used: String,
    pub ceiling: String,
    /// A sentence for the person who reads the agent's output.
    pub message: String,
}

fn add(a: TokenUsage, b: TokenUsage) -> TokenUsage {
    TokenUsage {
        input: a.input.saturating_add(b.input),
        cache_read: a.cache_read.saturating_add(b.cache_read),
        cache_write: a.cache_write.saturating_add(b.cache_write),
        cache_write_long: a.cache_write_long.saturating_add(b.cache_write_long),
        output: a.output.saturating_add(b.output),
        web_searches: a.web_searches.saturating_add(b.web_searches),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Till(Mutex<Vec<Outcome>>);

    impl Account for Till {
        fn settle(&self, _: &Reservation, outcome: &Outcome) -> Settlement {
            self.0.lock().unwrap().push(outcome.clone());
            Settlement { kind: CallKind::Turn, cost: Cost::Unknown, basis: Basis::Reserved }
        }
    }

    fn permit(till: &Arc<Till>) -> Permit {
        let account: Arc<dyn Account> = Arc::<Till>::clone(till);
        Permit::new(
            account,
            Reservation {
                model: "m".to_owned(),
                kind: CallKind::Turn,
                cost: None,
                input: None,
                output: None,
                output_limit: None,
            },
        )
    }

    #[test]
    fn a_permit_is_settled_once_and_a_dropped_one_as_unknown() {
        let till = Arc::new(Till::default());
        let settled = permit(&till).settle(&Outcome::Rejected);
        assert_eq!(settled.kind, CallKind::Turn);
        drop(permit(&till));
        drop(permit(&till).hold().leave());
        assert_eq!(
            *till.0.lock().unwrap(),
            [Outcome::Rejected, Outcome::Unknown, Outcome::Unknown]
        );
    }

    #[test]
    fn a_permit_whose_call_never_left_gives_its_money_back() {
        let till = Arc::new(Till::default());
        drop(permit(&till).hold());
        assert_eq!(*till.0.lock().unwrap(), [Outcome::Rejected]);
    }
}
