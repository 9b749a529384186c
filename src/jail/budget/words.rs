//! The sentences of refusals: what is used, what the ceiling is, how to go on.

use kvro_proxy::gate::{Ask, Refusal};

use super::account::Books;
use super::bound::Unbounded;
use crate::limits::Limits;

pub(super) fn turns(used: u64, ceiling: u64) -> Refusal {
    refusal(
        "max_turns",
        used.to_string(),
        ceiling.to_string(),
        format!("turn limit reached ({used} of {ceiling}); raise it with --max-turns"),
    )
}

pub(super) fn context(used: u64, ceiling: u64) -> Refusal {
    refusal(
        "max_context_tokens",
        used.to_string(),
        ceiling.to_string(),
        format!(
            "context limit reached ({used} of {ceiling} tokens); start afresh, or raise it with \
             --max-context"
        ),
    )
}

pub(super) fn tokens(used: u64, ceiling: u64) -> Refusal {
    refusal(
        "max_tokens",
        used.to_string(),
        ceiling.to_string(),
        format!("token limit reached ({used} of {ceiling}); raise it with --max-tokens"),
    )
}

/// The refusal of a call that cannot be bounded.
pub(super) fn unbounded(why: Unbounded, ask: &Ask, books: &Books, limits: &Limits) -> Refusal {
    let ceiling = limits.max_usd.unwrap_or_default();
    let spent = books.spent();
    match why {
        Unbounded::Usd => {
            let held = books.held();
            let held = if held.pico() == 0 {
                String::new()
            } else {
                format!(", ${held} held for calls in flight")
            };
            refusal(
                "max_usd",
                spent.to_string(),
                ceiling.to_string(),
                format!(
                    "run budget reached (${spent} of ${ceiling} spent{held}; the next call may \
                     cost more than is left); raise it with --max-usd"
                ),
            )
        }
        Unbounded::Tokens => tokens(books.tokens(), limits.max_tokens.unwrap_or_default()),
        Unbounded::Price => refusal(
            "unknown_price",
            spent.to_string(),
            ceiling.to_string(),
            format!(
                "{:?} has no known price, so it cannot be used under a ceiling on money; give it \
                 one with [[price]] in the policy",
                ask.model
            ),
        ),
        Unbounded::Part(part) => refusal(
            "unbounded",
            spent.to_string(),
            ceiling.to_string(),
            format!(
                "the request uses {part}, whose cost nothing bounds, under a ceiling on money; \
                 switch it off in the client"
            ),
        ),
    }
}

/// The refusal while the ledger cannot be written.
pub(super) fn unrecorded() -> Refusal {
    refusal(
        "ledger_failed",
        String::new(),
        String::new(),
        "the ledger cannot be written, so nothing more is spent".to_owned(),
    )
}

fn refusal(limit: &'static str, used: String, ceiling: String, message: String) -> Refusal {
    Refusal { limit, used, ceiling, message: format!("kvro-jail: {message}") }
}
