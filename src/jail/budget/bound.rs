//! What one call can come to at most, and the output limit that makes it so.
//!
//! A client's own limit is often far above what it uses, and holding all of it back would starve
//! the calls beside it. Under a ceiling on money one call therefore gets at most half of what is
//! left, as long as that is a useful answer, and the limit that is sent upstream is lowered to it.

use kvro_ledger::PicoUsd;
use kvro_proxy::gate::{Adjust, Ask, InputBound};
use kvro_proxy::price::{Price, UnitCeiling};

/// An answer of this many output tokens is useful; a call is lowered below it only at the very end.
const USEFUL_OUTPUT: u64 = 4_096;
/// Below this an answer is not worth its input.
const LEAST_OUTPUT: u64 = 256;
/// Put in where neither the client nor the table says how long an answer may be.
const ASSUMED_OUTPUT: u64 = 16_384;

/// What there is to spend; `None` is no ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) usd: Option<PicoUsd>,
    pub(super) tokens: Option<u64>,
}

/// The most that a call can come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) cost: Option<PicoUsd>,
    pub(super) input: Option<u64>,
    /// Over all answers.
    pub(super) output: Option<u64>,
    /// To be sent upstream, for each answer.
    pub(super) output_limit: Option<u64>,
}

/// Why a call cannot be bounded within its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unbounded {
    /// It may cost more than is left.
    Usd,
    /// Too few tokens are left for an answer.
    Tokens,
    /// Nothing prices it.
    Price,
    /// Nothing limits this part of it.
    Part(&'static str),
}

/// What happens to a call that nothing prices under a ceiling on money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unpriced {
    Admitted,
    Refused,
}

pub(super) fn bound(
    ask: &Ask,
    price: Option<&Price>,
    room: Room,
    unpriced: Unpriced,
) -> Result<Bound, Unbounded> {
    let input = input_tokens(ask, price);
    let units = match (price, input) {
        (Some(price), Ok(input)) => price.ceiling(input, &ask.terms),
        _ => None,
    };
    let longest = price.and_then(|price| price.max_output);
    let limited = limit_by_tokens(ask, longest, room.tokens)?;
    let Some(left) = room.usd else {
        return Ok(unceiled(ask, input.ok(), units, longest, limited));
    };
    if price.is_none() && unpriced == Unpriced::Admitted {
        return Ok(unceiled(ask, input.ok(), None, longest, limited));
    }
    if price.is_none() {
        return Err(Unbounded::Price);
    }
    let input = input?;
    let units = units.ok_or(Unbounded::Price)?;
    within(ask, input, units, longest, limited, left)
}

/// The most input tokens, or what hides them.
fn input_tokens(ask: &Ask, price: Option<&Price>) -> Result<u64, Unbounded> {
    match ask.input {
        InputBound::Tokens(tokens) => Ok(tokens),
        InputBound::Windows(steps) => price
            .and_then(|price| price.context)
            .map(|window| window.saturating_mul(steps))
            .ok_or(Unbounded::Part("a stored file, answer or document")),
        InputBound::Unbounded(part) => Err(Unbounded::Part(part)),
    }
}

/// The output limit that a ceiling on tokens leaves, where it asks for one.
fn limit_by_tokens(
    ask: &Ask,
    longest: Option<u64>,
    left: Option<u64>,
) -> Result<Option<u64>, Unbounded> {
    let (Some(left), Adjust::Allowed) = (left, ask.output.adjust) else { return Ok(None) };
    let each = left / ask.output.answers.max(1);
    if each < needed(ask) {
        return Err(Unbounded::Tokens);
    }
    let asked = ask.output.limit.or(longest).unwrap_or(ASSUMED_OUTPUT);
    Ok(Some(each.min(asked)))
}

/// The fewest tokens of output that are worth the call.
fn needed(ask: &Ask) -> u64 {
    ask.output.limit.unwrap_or(LEAST_OUTPUT).min(LEAST_OUTPUT).max(ask.output.floor).max(1)
}

/// The bound where money has no ceiling: nothing is lowered for it.
fn unceiled(
    ask: &Ask,
    input: Option<u64>,
    units: Option<UnitCeiling>,
    longest: Option<u64>,
    limited: Option<u64>,
) -> Bound {
    let each = match ask.output.adjust {
        Adjust::NoOutput => Some(0),
        Adjust::Allowed => limited.or(ask.output.limit).or(longest),
        Adjust::Fixed => longest,
    };
    let output = each.map(|each| all_answers(ask, each));
    let cost = match (input, output, units) {
        (Some(input), Some(output), Some(units)) => fees(ask, units)
            .map(|fees| units.input.times(input) + units.output.times(output) + fees),
        _ => None,
    };
    Bound { cost, input, output, output_limit: limited }
}

/// The bound under a ceiling on money with `left` to spend.
fn within(
    ask: &Ask,
    input: u64,
    units: UnitCeiling,
    longest: Option<u64>,
    limited: Option<u64>,
    left: PicoUsd,
) -> Result<Bound, Unbounded> {
    let fees = fees(ask, units).ok_or(Unbounded::Price)?;
    let base = units.input.times(input) + units.output.times(ask.output.extra) + fees;
    let answers = ask.output.answers.max(1);
    let affordable = |money: PicoUsd| {
        let pico = money.saturating_sub(base).pico();
        let each = units.output.times(answers).pico();
        u64::try_from(pico.checked_div(each).unwrap_or(u128::MAX)).unwrap_or(u64::MAX)
    };
    if base > left {
        return Err(Unbounded::Usd);
    }
    let each = match ask.output.adjust {
        Adjust::NoOutput => 0,
        Adjust::Fixed => {
            let longest = longest.ok_or(Unbounded::Part("an answer without a limit"))?;
            if affordable(left) < longest {
                return Err(Unbounded::Usd);
            }
            longest
        }
        Adjust::Allowed => {
            let asked = limited.or(ask.output.limit).or(longest).unwrap_or(ASSUMED_OUTPUT);
            let half = affordable(PicoUsd::new(left.pico() / 2));
            let useful = USEFUL_OUTPUT.max(ask.output.floor.saturating_add(LEAST_OUTPUT));
            let each = asked.min(half.max(affordable(left).min(useful)));
            if each < needed(ask) {
                return Err(Unbounded::Usd);
            }
            each
        }
    };
    let output = all_answers(ask, each);
    Ok(Bound {
        cost: Some(base + units.output.times(each.saturating_mul(answers))),
        input: Some(input),
        output: Some(output),
        output_limit: (ask.output.adjust == Adjust::Allowed).then_some(each),
    })
}

fn all_answers(ask: &Ask, each: u64) -> u64 {
    each.saturating_mul(ask.output.answers.max(1)).saturating_add(ask.output.extra)
}

fn fees(ask: &Ask, units: UnitCeiling) -> Option<PicoUsd> {
    match ask.terms.web_searches {
        0 => Some(PicoUsd::ZERO),
        searches => Some(units.web_search?.times(searches)),
    }
}
