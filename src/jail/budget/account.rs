//! The books: what was used, what is held for calls in flight, what was said about it.

use std::collections::BTreeSet;
use std::fmt;

use kvro_ledger::PicoUsd;
use kvro_ledger::event::{Basis, CallKind, Cost, TokenUsage};
use kvro_proxy::gate::{Fees, Outcome, Refusal, Reservation, Settlement, Usage};
use kvro_proxy::price::PriceTable;

use super::bound::Room;
use crate::limits::Limits;

/// The state behind the one lock.
#[derive(Debug, Default)]
pub(super) struct Books {
    turns: u64,
    turns_held: u64,
    spent: PicoUsd,
    /// Calls that nothing prices: with one, what was spent is not known.
    unpriced: u64,
    held: PicoUsd,
    tokens: u64,
    /// Input side of the last turn that was reported.
    pub(super) context: u64,
    /// Warnings that were given.
    warned: BTreeSet<(&'static str, u8)>,
    /// Ceilings that were said to be reached.
    pub(super) reached: BTreeSet<&'static str>,
    /// The refusal that ended the run: nothing is accepted after it.
    pub(super) ended: Option<Refusal>,
}

/// What a run has used, as far as its calls are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    pub turns: u64,
    pub tokens: u64,
    pub cost: Spend,
}

/// What was spent; unknown as soon as one call has no price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spend {
    Known(PicoUsd),
    Unknown,
}

impl fmt::Display for Spend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(amount) => amount.fmt(f),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// A ceiling and where the run stands below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) limit: &'static str,
    pub(super) used: String,
    pub(super) ceiling: String,
}

/// A warning that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Warning {
    pub(super) percent: u8,
    pub(super) standing: Standing,
}

impl Books {
    /// What is left for the next call.
    pub(super) fn room(&self, limits: &Limits) -> Room {
        Room {
            usd: limits.max_usd.map(|ceiling| ceiling.saturating_sub(self.committed())),
            tokens: limits.max_tokens.map(|ceiling| ceiling.saturating_sub(self.tokens)),
        }
    }

    /// All that may be spent once every call in flight is settled.
    pub(super) fn committed(&self) -> PicoUsd {
        self.spent + self.held
    }

    pub(super) const fn spent(&self) -> PicoUsd {
        self.spent
    }

    pub(super) const fn held(&self) -> PicoUsd {
        self.held
    }

    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// What was used up to now, for those who ask while the run goes on.
    pub(super) const fn used(&self) -> Used {
        let cost = match self.unpriced {
            0 => Spend::Known(self.spent),
            _ => Spend::Unknown,
        };
        Used { turns: self.turns, tokens: self.tokens, cost }
    }

    /// Turns that were accepted or may still be.
    pub(super) const fn turns(&self) -> u64 {
        self.turns.saturating_add(self.turns_held)
    }

    pub(super) fn hold(&mut self, reservation: &Reservation) {
        self.held = self.held + reservation.cost.unwrap_or_default();
        if reservation.kind == CallKind::Turn {
            self.turns_held += 1;
        }
    }

    /// Takes back what [`Self::hold`] put aside.
    pub(super) fn release(&mut self, reservation: &Reservation) {
        self.held = self.held.saturating_sub(reservation.cost.unwrap_or_default());
        if reservation.kind == CallKind::Turn {
            self.turns_held = self.turns_held.saturating_sub(1);
        }
    }

    /// Releases `reservation` and charges what `outcome` says.
    pub(super) fn settle(
        &mut self,
        prices: &PriceTable,
        reservation: &Reservation,
        outcome: &Outcome,
    ) -> Settlement {
        self.release(reservation);
        let (settlement, tokens) = charge(prices, reservation, outcome);
        match settlement.cost {
            Cost::Known(cost) => self.spent = self.spent + cost,
            Cost::Unknown => self.unpriced += 1,
        }
        self.tokens = self.tokens.saturating_add(tokens);
        if settlement.kind == CallKind::Turn {
            self.turns += 1;
        }
        if let Outcome::Reported(usage) | Outcome::Partial(usage) = outcome
            && settlement.kind == CallKind::Turn
            && usage.context_tokens > 0
        {
            self.context = usage.context_tokens;
        }
        settlement
    }

    /// The warnings that are due now; each is given once.
    pub(super) fn warnings(&mut self, limits: &Limits) -> Vec<Warning> {
        let count = |value: u64| (u128::from(value), value.to_string());
        let money = |value: PicoUsd| (value.pico(), value.to_string());
        let standings = [
            ("max_turns", limits.max_turns.map(|c| (count(self.turns), count(c)))),
            ("max_usd", limits.max_usd.map(|c| (money(self.spent), money(c)))),
            ("max_tokens", limits.max_tokens.map(|c| (count(self.tokens), count(c)))),
            (
                "max_context_tokens",
                limits.max_context_tokens.map(|c| (count(self.context), count(c))),
            ),
        ];
        let mut due = Vec::new();
        for (limit, standing) in standings {
            let Some(((used, used_text), (ceiling, ceiling_text))) = standing else { continue };
            for &percent in &limits.warn_at {
                let reached =
                    used.saturating_mul(100) >= ceiling.saturating_mul(u128::from(percent));
                if reached && self.warned.insert((limit, percent)) {
                    let standing =
                        Standing { limit, used: used_text.clone(), ceiling: ceiling_text.clone() };
                    due.push(Warning { percent, standing });
                }
            }
        }
        due
    }
}

/// What a call comes to, and how many tokens it counts as.
fn charge(prices: &PriceTable, reservation: &Reservation, outcome: &Outcome) -> (Settlement, u64) {
    let kind = reservation.kind;
    match outcome {
        Outcome::Rejected => {
            let cost = Cost::Known(PicoUsd::ZERO);
            (Settlement { kind: CallKind::Call, cost, basis: Basis::Rejected }, 0)
        }
        Outcome::Reported(usage) => {
            (reported(prices, reservation, usage, kind), total(usage.total()))
        }
        // A refused call that was billed all the same is paid for, and is no turn.
        Outcome::RejectedAt(usage) => {
            (reported(prices, reservation, usage, CallKind::Call), total(usage.total()))
        }
        Outcome::Partial(usage) => {
            let mut worst = usage.clone();
            worst.tokens.output = worst.tokens.output.max(reservation.output.unwrap_or(0));
            let tokens = total(worst.total());
            // Without a limit on the output the input side alone says nothing of the cost.
            let known = reservation.output.and_then(|_| price(prices, reservation, &worst));
            (reserved(reservation, known), tokens)
        }
        Outcome::Unknown => {
            let tokens =
                reservation.input.unwrap_or(0).saturating_add(reservation.output.unwrap_or(0));
            (reserved(reservation, None), tokens)
        }
    }
}

fn reported(
    prices: &PriceTable,
    reservation: &Reservation,
    usage: &Usage,
    kind: CallKind,
) -> Settlement {
    match (price(prices, reservation, usage), reservation.cost) {
        (Some(cost), _) => Settlement { kind, cost: Cost::Known(cost), basis: Basis::Reported },
        // Served by a model, or at terms, that the table does not know.
        (None, Some(cost)) => Settlement { kind, cost: Cost::Known(cost), basis: Basis::Reserved },
        (None, None) => Settlement { kind, cost: Cost::Unknown, basis: Basis::Reported },
    }
}

fn reserved(reservation: &Reservation, known: Option<PicoUsd>) -> Settlement {
    let cost = known.or(reservation.cost).map_or(Cost::Unknown, Cost::Known);
    Settlement { kind: reservation.kind, cost, basis: Basis::Reserved }
}

/// What `usage` costs. The model that answered prices it, not the one that was asked for.
fn price(prices: &PriceTable, reservation: &Reservation, usage: &Usage) -> Option<PicoUsd> {
    if usage.fees == Fees::Unlisted {
        return None;
    }
    let model = usage.model.as_deref().unwrap_or(&reservation.model);
    let cost = |model: &str, tokens: &TokenUsage| prices.price(model)?.cost(tokens, &usage.terms);
    usage.others.iter().try_fold(cost(model, &usage.tokens)?, |sum, side| {
        Some(sum + cost(side.model.as_deref().unwrap_or(model), &side.tokens)?)
    })
}

fn total(tokens: TokenUsage) -> u64 {
    [tokens.input, tokens.cache_read, tokens.cache_write, tokens.output]
        .into_iter()
        .fold(0, u64::saturating_add)
}
