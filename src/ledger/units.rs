//! Units that must not be mixed up: money and run names.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Pico-dollars in a dollar.
const PICO: u128 = 1_000_000_000_000;

/// An exact amount of money, in units of 10⁻¹² US dollars; never negative.
///
/// Written as a decimal string without an exponent: `"0.0169"`, `"5"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PicoUsd(u128);

impl PicoUsd {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn new(pico: u128) -> Self {
        Self(pico)
    }

    #[must_use]
    pub const fn pico(self) -> u128 {
        self.0
    }

    /// The sum, held at the largest amount that fits.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, held at zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `count` times this amount, held at the largest amount that fits.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count as u128))
    }
}

impl Add for PicoUsd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl Sum for PicoUsd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for PicoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / PICO, self.0 % PICO);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{part:012}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// An amount that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error("an amount is digits with at most one point, like 5.00")]
    Malformed,
    #[error("an amount has at most 12 digits behind the point")]
    TooFine,
    #[error("an amount this large cannot be kept")]
    TooLarge,
}

impl FromStr for PicoUsd {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let text = text.strip_prefix('$').unwrap_or(text);
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) {
            return Err(AmountError::Malformed);
        }
        if part.len() > 12 {
            return Err(AmountError::TooFine);
        }
        let parse =
            |digits: &str| digits.parse::<u128>().map_err(|_overflow| AmountError::TooLarge);
        let scale =
            10_u128.pow(12 - u32::try_from(part.len()).map_err(|_overflow| AmountError::TooFine)?);
        parse(whole)?
            .checked_mul(PICO)
            .and_then(|pico| pico.checked_add(parse(part).ok()? * scale))
            .map(Self)
            .ok_or(AmountError::TooLarge)
    }
}

impl Serialize for PicoUsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PicoUsd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Names a run: `20261130-161200-4f2a9c`, so that names sort by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(String);

/// A text that is not a run's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run is named like 20261130-161200-4f2a9c")]
pub struct NotARun;

impl RunId {
    /// The name of a run that starts at `now`. Its last part is the millisecond, so that names sort
    /// by time, and 14 bits of `salt`, which tell runs of one millisecond apart.
    #[must_use]
    pub fn new(now: jiff::Timestamp, salt: u32) -> Self {
        let millisecond = now.subsec_millisecond().unsigned_abs();
        let last = (millisecond << 14) | (salt & 0x3fff);
        Self(format!("{}-{last:06x}", now.strftime("%Y%m%d-%H%M%S")))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = NotARun;

    /// Accepts only the one form, so that a name can be used as a directory's.
    fn from_str(text: &str) -> Result<Self, NotARun> {
        let fits = |part: Option<&str>, len: usize, ok: fn(&u8) -> bool| {
            part.is_some_and(|part| part.len() == len && part.as_bytes().iter().all(ok))
        };
        let mut parts = text.split('-');
        let named = fits(parts.next(), 8, u8::is_ascii_digit)
            && fits(parts.next(), 6, u8::is_ascii_digit)
            && fits(parts.next(), 6, u8::is_ascii_hexdigit)
            && parts.next().is_none();
        if named { Ok(Self(text.to_owned())) } else { Err(NotARun) }
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_reads_back_as_it_was_written() {
        for text in ["0", "5", "0.0169", "0.000000000001", "340282366920938463463374607"] {
            assert_eq!(text.parse::<PicoUsd>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("$5.00".parse::<PicoUsd>(), Ok(PicoUsd::new(5 * PICO)));
    }

    #[test]
    fn what_is_not_an_amount_is_refused() {
        for text in ["", "-1", "+1", "1.", ".5", "1e3", "1,5", "1.2.3", " 1", "0x1", "NaN"] {
            assert_eq!(text.parse::<PicoUsd>(), Err(AmountError::Malformed), "{text:?}");
        }
        assert_eq!("0.0000000000001".parse::<PicoUsd>(), Err(AmountError::TooFine));
        assert_eq!("9".repeat(60).parse::<PicoUsd>(), Err(AmountError::TooLarge));
    }

    #[test]
    fn names_sort_by_time_to_the_millisecond() {
        let at = |text: &str, salt| RunId::new(text.parse().unwrap(), salt);
        let early = at("2026-11-30T16:12:00.001Z", u32::MAX);
        let late = at("2026-11-30T16:12:00.999Z", 0);
        assert_eq!(early.as_str(), "20261130-161200-007fff");
        assert!(early < late);
        assert_eq!(late.as_str().parse(), Ok(late.clone()));
    }

    #[test]
    fn a_run_name_is_never_a_path() {
        "20261130-161200-4f2a9c".parse::<RunId>().unwrap();
        for text in ["", "..", "20261130-161200-4f2a9c/..", "20261130-161200-../..a", "a-b-c"] {
            assert_eq!(text.parse::<RunId>(), Err(NotARun), "{text:?}");
        }
    }
}
