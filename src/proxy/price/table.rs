//! Prices as they are written, and how a model's name finds its row.

use std::collections::BTreeMap;
use std::str::FromStr;

use kvro_ledger::PicoUsd;
use serde::Deserialize;

use super::rates::{Factor, Price, Rates, Variant};

/// The prices that the program is built with.
const BUILTIN: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/prices.toml"));

/// Every price that is known, by model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceTable {
    rows: BTreeMap<String, Price>,
}

/// A table that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    #[error("cannot read the prices")]
    Syntax(#[source] toml::de::Error),
    #[error("cannot read {field} of {model}")]
    Amount {
        model: String,
        field: &'static str,
        #[source]
        cause: <PicoUsd as FromStr>::Err,
    },
    #[error("{field} of {model} is finer than a pico-dollar for one token")]
    TooFine { model: String, field: &'static str },
    #[error("{model} is listed twice")]
    Twice { model: String },
}

/// One `[[price]]` as it is written: dollars per million tokens, as decimal strings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceRow {
    pub model: String,
    /// Who asks this price; said for the reader.
    pub provider: Option<String>,
    pub input: String,
    pub output: String,
    pub cache_read: Option<String>,
    pub cache_write: Option<String>,
    pub cache_write_long: Option<String>,
    /// For 1,000 searches.
    pub web_search: Option<String>,
    pub context: Option<u64>,
    pub max_output: Option<u64>,
    pub us: Option<String>,
    pub fast: Option<String>,
    #[serde(default)]
    pub when: Vec<WhenRow>,
    pub why: Option<String>,
}

/// Rates that hold instead of a row's own, in some case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhenRow {
    pub tier: Option<String>,
    pub above: Option<u64>,
    pub input: String,
    pub output: String,
    pub cache_read: Option<String>,
    pub cache_write: Option<String>,
    pub cache_write_long: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableToml {
    #[serde(rename = "version")]
    _version: u32,
    #[serde(rename = "date")]
    _date: String,
    #[serde(rename = "source")]
    _source: String,
    #[serde(rename = "why")]
    _why: String,
    price: Vec<PriceRow>,
}

impl PriceTable {
    /// The prices that come with the program.
    pub fn builtin() -> Result<Self, PriceError> {
        Self::parse(BUILTIN)
    }

    pub fn parse(text: &str) -> Result<Self, PriceError> {
        let toml: TableToml = toml::from_str(text).map_err(PriceError::Syntax)?;
        let mut table = Self::default();
        for row in &toml.price {
            if table.rows.insert(row.model.clone(), row.resolve()?).is_some() {
                return Err(PriceError::Twice { model: row.model.clone() });
            }
        }
        Ok(table)
    }

    /// Puts `row` in, over the one of the same model: what the user says beats what is built in.
    pub fn put(&mut self, row: &PriceRow) -> Result<(), PriceError> {
        self.rows.insert(row.model.clone(), row.resolve()?);
        Ok(())
    }

    /// The price of `model`: under its exact name, else without its date, else without the prefix
    /// that a gateway or cloud puts before it.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<&Price> {
        let exact = |name: &str| self.rows.get(name).or_else(|| self.rows.get(without_date(name)));
        exact(model).or_else(|| exact(without_prefix(model)))
    }
}

impl PriceRow {
    fn resolve(&self) -> Result<Price, PriceError> {
        let per_token = |field, text: &str| self.per_token(field, text);
        let base = self.rates(
            [&self.input, &self.output],
            [&self.cache_read, &self.cache_write, &self.cache_write_long],
        )?;
        let when = self
            .when
            .iter()
            .map(|row| {
                let rates = self.rates(
                    [&row.input, &row.output],
                    [&row.cache_read, &row.cache_write, &row.cache_write_long],
                )?;
                Ok(Variant { tier: row.tier.clone(), above: row.above, rates })
            })
            .collect::<Result<_, PriceError>>()?;
        // A fee for 1,000 searches is divided by 1,000; the million-token division is 1,000 more.
        let fee = |text: &str| per_token("web_search", text).map(|micro| micro.times(1_000));
        Ok(Price {
            base,
            when,
            web_search: self.web_search.as_deref().map(fee).transpose()?,
            us: self.us.as_deref().map(|text| self.factor("us", text)).transpose()?,
            fast: self.fast.as_deref().map(|text| self.factor("fast", text)).transpose()?,
            context: self.context,
            max_output: self.max_output,
        })
    }

    /// Cached input without a price of its own costs what input costs.
    fn rates(
        &self,
        [input, output]: [&String; 2],
        [read, write, long]: [&Option<String>; 3],
    ) -> Result<Rates, PriceError> {
        let input = self.per_token("input", input)?;
        let or = |field, text: &Option<String>, otherwise| {
            text.as_deref().map_or(Ok(otherwise), |text| self.per_token(field, text))
        };
        let cache_write = or("cache_write", write, input)?;
        Ok(Rates {
            input,
            output: self.per_token("output", output)?,
            cache_read: or("cache_read", read, input)?,
            cache_write,
            cache_write_long: or("cache_write_long", long, cache_write)?,
        })
    }

    fn amount(&self, field: &'static str, text: &str) -> Result<PicoUsd, PriceError> {
        let model = || self.model.clone();
        text.parse().map_err(|cause| PriceError::Amount { model: model(), field, cause })
    }

    fn per_token(&self, field: &'static str, text: &str) -> Result<PicoUsd, PriceError> {
        const MILLION: u128 = 1_000_000;
        let per_million = self.amount(field, text)?.pico();
        if per_million % MILLION != 0 {
            return Err(PriceError::TooFine { model: self.model.clone(), field });
        }
        Ok(PicoUsd::new(per_million / MILLION))
    }

    fn factor(&self, field: &'static str, text: &str) -> Result<Factor, PriceError> {
        self.amount(field, text).map(|amount| Factor::new(amount.pico()))
    }
}

/// `model` without `-20260401`, `@20260401` or `-2026-04-01` behind it.
fn without_date(model: &str) -> &str {
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    if let Some((name, date)) = model.rsplit_once(['-', '@'])
        && digits(date, 8)
    {
        return name;
    }
    let mut parts = model.rsplitn(4, '-');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(day), Some(month), Some(year), Some(name))
            if digits(day, 2) && digits(month, 2) && digits(year, 4) =>
        {
            name
        }
        _ => model,
    }
}

/// `model` without `openai/`, or without `us.anthropic.` before and `-v1:0` behind it.
fn without_prefix(model: &str) -> &str {
    if let Some((_, name)) = model.rsplit_once('/') {
        return name;
    }
    let Some((_, name)) = model.split_once("anthropic.") else {
        return model;
    };
    let is_version = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b':');
    match name.rsplit_once("-v") {
        Some((name, version)) if is_version(version) => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_price_is_read() {
        let table = PriceTable::builtin().unwrap();
        assert!(table.rows.len() > 60);
        for (model, price) in &table.rows {
            assert!(price.base.input > PicoUsd::ZERO, "{model} has no price for input");
        }
    }

    #[test]
    fn a_model_is_found_by_exact_name_then_without_date_then_without_prefix() {
        let table = PriceTable::builtin().unwrap();
        let opus = table.price("claude-opus-5-5");
        assert!(opus.is_some());
        for name in [
            "claude-opus-5-5-20260901",
            "claude-opus-5-5@20260901",
            "anthropic/claude-opus-5-5",
            "us.anthropic.claude-opus-5-5-20260901-v1:0",
            "global.anthropic.claude-opus-5-5-v1",
        ] {
            assert_eq!(table.price(name), opus, "{name}");
        }
        assert_eq!(table.price("gpt-4o-2024-08-06"), table.price("gpt-4o"));
        assert_ne!(table.price("gpt-4o-2024-05-13"), table.price("gpt-4o"));
        for name in ["claude-opus-5.5", "CLAUDE-OPUS-5-5", "gpt-6.2-sol", "auto", "", "-20260901"] {
            assert_eq!(table.price(name), None, "{name:?}");
        }
    }

    fn table(rows: &str) -> String {
        format!("version = 1\ndate = \"d\"\nsource = \"s\"\nwhy = \"w\"\n{rows}")
    }

    #[test]
    fn a_wrong_price_is_an_error_that_names_the_row() {
        let error = |rows: &str| PriceTable::parse(&table(rows)).unwrap_err().to_string();
        let row = |rest: &str| format!("[[price]]\nmodel = \"m\"\n{rest}\n");
        assert_eq!(error(&row("input = \"-1\"\noutput = \"1\"")), "cannot read input of m");
        assert_eq!(
            error(&row("input = \"1\"\noutput = \"0.0000001\"")),
            "output of m is finer than a pico-dollar for one token"
        );
        assert_eq!(
            error(&row("input = \"1\"\noutput = \"1\"\nimput = \"2\"")),
            "cannot read the prices"
        );
        assert_eq!(error(&row("input = \"1\"\noutput = \"1\"").repeat(2)), "m is listed twice");
    }

    #[test]
    fn the_users_price_beats_the_built_in_one() {
        #[derive(Deserialize)]
        struct Policy {
            price: Vec<PriceRow>,
        }
        let policy: Policy =
            toml::from_str("[[price]]\nmodel = \"gpt-5\"\ninput = \"7\"\noutput = \"8\"").unwrap();
        let mut table = PriceTable::builtin().unwrap();
        table.put(&policy.price[0]).unwrap();
        let price = table.price("gpt-5").unwrap();
        assert_eq!(
            (price.base.input, price.base.output),
            (PicoUsd::new(7_000_000), PicoUsd::new(8_000_000))
        );
        assert_eq!(price.base.cache_read, price.base.input);
    }
}
