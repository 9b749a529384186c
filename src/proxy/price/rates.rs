//! From usage to money, and from a bound on usage to the most that it can cost.
//!
//! Whatever a price has no rule for has no cost: a tier, speed or fee that is not listed gives
//! `None`, and the caller then charges what it reserved.

use kvro_ledger::PicoUsd;
use kvro_ledger::event::TokenUsage;

use crate::gate::{AskedCache, AskedTerms, AskedTier, ServedTerms, Speed};

/// What one model costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// The most input tokens of one generation step.
    pub context: Option<u64>,
    /// The most output tokens of one answer.
    pub max_output: Option<u64>,
    pub(super) base: Rates,
    pub(super) when: Vec<Variant>,
    /// For one search.
    pub(super) web_search: Option<PicoUsd>,
    /// Where the call is bound to run in one country.
    pub(super) us: Option<Factor>,
    pub(super) fast: Option<Factor>,
}

/// Prices of one token, by disjoint kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) input: PicoUsd,
    pub(super) output: PicoUsd,
    pub(super) cache_read: PicoUsd,
    pub(super) cache_write: PicoUsd,
    pub(super) cache_write_long: PicoUsd,
}

/// Rates of a service tier, or of requests with more input than `above`, or of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) tier: Option<String>,
    pub(super) above: Option<u64>,
    pub(super) rates: Rates,
}

/// A factor of the price, in units of 10⁻¹².
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Factor(u128);

/// The most that one token of input and of output can cost for a call, all factors included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitCeiling {
    pub input: PicoUsd,
    pub output: PicoUsd,
    /// For one search; `None` when it has no listed fee.
    pub web_search: Option<PicoUsd>,
}

impl Price {
    /// What `usage` costs at the terms that served it.
    #[must_use]
    pub fn cost(&self, usage: &TokenUsage, terms: &ServedTerms) -> Option<PicoUsd> {
        let rates = self.served(terms.tier.as_deref(), usage.input_side())?;
        let tokens = [self.geo(terms), self.speed(terms)?]
            .into_iter()
            .flatten()
            .fold(rates.cost(usage), |cost, factor| factor.of(cost));
        let fees = match usage.web_searches {
            0 => PicoUsd::ZERO,
            searches => self.web_search?.times(searches),
        };
        Some(tokens + fees)
    }

    /// The dearest that a call with at most `input` tokens of input can become.
    #[must_use]
    pub fn ceiling(&self, input: u64, terms: &AskedTerms) -> Option<UnitCeiling> {
        let reachable = |variant: &&Variant| {
            let tier = match (terms.tier, variant.tier.as_deref()) {
                (AskedTier::Any, _) | (AskedTier::Standard, None) => true,
                (AskedTier::Standard, Some(_)) => false,
            };
            tier && variant.above.is_none_or(|above| input > above)
        };
        let dearest = self
            .when
            .iter()
            .filter(reachable)
            .fold(self.base, |rates, variant| rates.dearer(variant.rates));
        let fast = match terms.speed {
            Speed::Standard => None,
            Speed::Fast => Some(self.fast?),
        };
        let raised = |rate| [self.us, fast].into_iter().flatten().fold(rate, |r, f| f.of(r));
        Some(UnitCeiling {
            input: raised(dearest.input_at_most(terms.cache)),
            output: raised(dearest.output),
            web_search: self.web_search,
        })
    }

    /// The rates of `tier` for a request with `input` tokens.
    fn served(&self, tier: Option<&str>, input: u64) -> Option<Rates> {
        let tier = match tier {
            None | Some("standard" | "default" | "auto") => None,
            Some("fast") => Some("priority"),
            other => other,
        };
        let find = |tier: Option<&str>, long: Length| {
            self.when.iter().find(|variant| {
                variant.tier.as_deref() == tier
                    && match long {
                        Length::Short => variant.above.is_none(),
                        Length::Long => variant.above.is_some_and(|above| input > above),
                    }
            })
        };
        let long = find(tier, Length::Long);
        let short = match tier {
            None => self.base,
            // Cheaper tiers that are not listed are priced as the standard one.
            Some("flex" | "batch") => find(tier, Length::Short).map_or(self.base, |v| v.rates),
            Some(_) => find(tier, Length::Short)?.rates,
        };
        match (long, find(None, Length::Long)) {
            (Some(long), _) => Some(long.rates),
            // The table has no row for this tier of a long request: the dearer of the two.
            (None, Some(standard)) => Some(short.dearer(standard.rates)),
            (None, None) => Some(short),
        }
    }

    fn geo(&self, terms: &ServedTerms) -> Option<Factor> {
        match terms.geo.as_deref() {
            None | Some("" | "global" | "not_available") => None,
            Some(_) => self.us,
        }
    }

    /// Outer `None`: served at a speed that has no price.
    #[expect(clippy::option_option, reason = "no factor and no price are different answers")]
    fn speed(&self, terms: &ServedTerms) -> Option<Option<Factor>> {
        match terms.speed.as_deref() {
            None | Some("standard") => Some(None),
            Some("fast") => self.fast.map(Some),
            Some(_) => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Length {
    Short,
    Long,
}

impl Rates {
    fn cost(&self, usage: &TokenUsage) -> PicoUsd {
        let short = usage.cache_write.saturating_sub(usage.cache_write_long);
        [
            self.input.times(usage.input),
            self.cache_read.times(usage.cache_read),
            self.cache_write.times(short),
            self.cache_write_long.times(usage.cache_write_long),
            self.output.times(usage.output),
        ]
        .into_iter()
        .sum()
    }

    fn dearer(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
            cache_write_long: self.cache_write_long.max(other.cache_write_long),
        }
    }

    fn input_at_most(&self, cache: AskedCache) -> PicoUsd {
        let read = self.input.max(self.cache_read);
        match cache {
            AskedCache::Never => read,
            AskedCache::Short => read.max(self.cache_write),
            AskedCache::Long => read.max(self.cache_write).max(self.cache_write_long),
        }
    }
}

impl Factor {
    const ONE: u128 = 1_000_000_000_000;

    pub(super) const fn new(pico: u128) -> Self {
        Self(pico)
    }

    /// `amount` times this factor, rounded up to a whole unit.
    fn of(self, amount: PicoUsd) -> PicoUsd {
        PicoUsd::new(amount.pico().saturating_mul(self.0).div_ceil(Self::ONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::PriceTable;

    fn cost(model: &str, usage: TokenUsage, terms: &ServedTerms) -> Option<String> {
        let table = PriceTable::builtin().unwrap();
        table.price(model).unwrap().cost(&usage, terms).map(|cost| cost.to_string())
    }

    fn known(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn tier(name: &str) -> ServedTerms {
        ServedTerms { tier: Some(name.to_owned()), ..ServedTerms::default() }
    }

    /// What a client's own table said for the same numbers, to the last digit.
    const ORACLE: TokenUsage = TokenUsage {
        input: 1_000,
        cache_read: 3_000,
        cache_write: 2_000,
        cache_write_long: 500,
        output: 40,
        web_searches: 0,
    };

    #[test]
    fn each_kind_of_token_is_priced_once_at_its_own_rate() {
        assert_eq!(cost("claude-opus-5-5", ORACLE, &ServedTerms::default()), known("0.0169"));
    }

    #[test]
    fn served_speed_and_place_multiply_the_tokens_but_not_the_fees() {
        let terms = |speed: &str, geo: &str| ServedTerms {
            speed: Some(speed.to_owned()),
            geo: Some(geo.to_owned()),
            ..ServedTerms::default()
        };
        assert_eq!(cost("claude-opus-5-5", ORACLE, &terms("standard", "global")), known("0.0169"));
        assert_eq!(cost("claude-opus-5-5", ORACLE, &terms("fast", "us")), known("0.03718"));
        let searched = TokenUsage { web_searches: 3, ..ORACLE };
        assert_eq!(cost("claude-opus-5-5", searched, &terms("fast", "us")), known("0.06718"));
        assert_eq!(cost("claude-sonnet-5", ORACLE, &terms("fast", "us")), None);
        assert_eq!(cost("claude-opus-5-5", ORACLE, &terms("warp", "us")), None);
    }

    #[test]
    fn a_long_request_is_priced_whole_at_the_long_rate() {
        let usage = |input| TokenUsage { input, output: 1_000, ..TokenUsage::default() };
        let standard = ServedTerms::default();
        assert_eq!(cost("gpt-6-sol", usage(272_000), &standard), known("0.554"));
        assert_eq!(cost("gpt-6-sol", usage(272_001), &standard), known("1.103004"));
        let cached = TokenUsage { cache_read: 100_001, ..TokenUsage::default() };
        assert_eq!(cost("claude-haiku-5-5", cached, &standard), known("0.00500005"));
    }

    #[test]
    fn the_served_tier_prices_the_call_and_an_unlisted_one_has_no_price() {
        let usage = |input| TokenUsage { input, ..TokenUsage::default() };
        assert_eq!(cost("gpt-6-sol", usage(1_000), &tier("default")), known("0.002"));
        assert_eq!(cost("gpt-6-sol", usage(1_000), &tier("priority")), known("0.004"));
        assert_eq!(cost("gpt-6-sol", usage(1_000), &tier("flex")), known("0.001"));
        assert_eq!(cost("gpt-6-sol", usage(300_000), &tier("priority")), known("2.4"));
        // gpt-5.4 lists no priority rate for long requests.
        assert_eq!(cost("gpt-5.4", usage(300_000), &tier("priority")), known("1.5"));
        assert_eq!(cost("gpt-6-sol", usage(1_000), &tier("hyper")), None);
        assert_eq!(cost("gpt-5.1-codex", usage(1_000), &tier("priority")), None);
    }

    #[test]
    fn a_search_without_a_listed_fee_has_no_price() {
        let searched = TokenUsage { web_searches: 1, ..TokenUsage::default() };
        assert_eq!(cost("gpt-4o", searched, &ServedTerms::default()), None);
        assert_eq!(cost("o3", searched, &ServedTerms::default()), known("0.01"));
    }

    #[test]
    fn input_is_held_at_the_price_of_the_cache_that_the_request_asks_for() {
        let table = PriceTable::builtin().unwrap();
        let price = table.price("claude-opus-4-5").unwrap();
        let input = |cache| {
            let terms = AskedTerms { cache, ..AskedTerms::default() };
            price.ceiling(1, &terms).map(|units| units.input.pico())
        };
        assert_eq!(input(AskedCache::Never), Some(5_000_000));
        assert_eq!(input(AskedCache::Short), Some(6_250_000));
        assert_eq!(input(AskedCache::Long), Some(10_000_000));
    }

    #[test]
    fn no_settled_cost_passes_the_ceiling_of_its_call() {
        let table = PriceTable::builtin().unwrap();
        let usage = TokenUsage {
            input: 100,
            cache_write: 300_000,
            cache_write_long: 300_000,
            output: 9,
            ..ORACLE
        };
        for model in ["claude-opus-5-5", "claude-haiku-5-5", "gpt-6-sol", "gpt-5.4", "gpt-4o"] {
            let price = table.price(model).unwrap();
            let input = usage.input + usage.cache_read + usage.cache_write;
            let ceiling = price.ceiling(input, &AskedTerms::default()).unwrap();
            let most = ceiling.input.times(input) + ceiling.output.times(usage.output);
            for tier in ["standard", "priority", "flex"] {
                for geo in ["global", "us"] {
                    let terms = ServedTerms {
                        tier: Some(tier.to_owned()),
                        geo: Some(geo.to_owned()),
                        speed: None,
                    };
                    assert!(
                        price.cost(&usage, &terms).is_none_or(|cost| cost <= most),
                        "{model} {tier} {geo}"
                    );
                }
            }
        }
    }
}
