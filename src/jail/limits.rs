//! The ceilings of a run, as they are enforced: the one type between policy and budget.

use std::time::Duration;

use kvro_ledger::PicoUsd;

/// What a run may use at most; `None` is no ceiling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Generation calls that a provider accepted.
    pub max_turns: Option<u64>,
    pub max_usd: Option<PicoUsd>,
    /// Tokens of every kind, summed over the run.
    pub max_tokens: Option<u64>,
    /// The input side of one call.
    pub max_context_tokens: Option<u64>,
    pub max_wall: Option<Duration>,
    /// Percentages of a ceiling, in ascending order, at which a warning is given once.
    pub warn_at: Vec<u8>,
    pub on_limit: OnLimit,
    pub unknown_price: UnknownPrice,
}

/// What follows the call that would cross a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnLimit {
    /// Calls are refused; the agent may go on without them.
    Deny,
    /// The process tree is ended.
    Kill,
}

/// What happens to a call that nothing prices while there is a ceiling on money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnknownPrice {
    Allow,
    Deny,
}

impl Limits {
    /// No ceiling at all, and the strict answer to everything else.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            max_turns: None,
            max_usd: None,
            max_tokens: None,
            max_context_tokens: None,
            max_wall: None,
            warn_at: Vec::new(),
            on_limit: OnLimit::Kill,
            unknown_price: UnknownPrice::Deny,
        }
    }
}
