//! Sizes, durations and shares as people type them; the flags of the command line read the same.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A size in bytes: `512M`, `4G`, `4GiB`, `1048576`. The letters are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A text that is no size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("a size is a whole number with K, M, G or T behind it, like 512M")]
    Malformed,
    #[error("a size this large cannot be kept")]
    TooLarge,
    #[error("a size of nothing lets nothing run")]
    Zero,
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let (digits, unit) = split_number(text);
        let shift = match unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit)
        {
            "" => 0,
            "K" | "k" => 10,
            "M" | "m" => 20,
            "G" | "g" => 30,
            "T" | "t" => 40,
            _ => return Err(SizeError::Malformed),
        };
        if digits.is_empty() {
            return Err(SizeError::Malformed);
        }
        let count: u64 = digits.parse().map_err(|_cause| SizeError::TooLarge)?;
        match count.checked_mul(1 << shift) {
            Some(0) => Err(SizeError::Zero),
            Some(bytes) => Ok(Self(bytes)),
            None => Err(SizeError::TooLarge),
        }
    }
}

/// In the largest unit that leaves a whole number.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        match units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift)
        {
            Some((shift, letter)) => write!(f, "{}{letter}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A length of time: `90s`, `45m`, `1h30m`, `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A text that is no length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    #[error("a duration is whole numbers, each with ms, s, m, h or d behind it, like 1h30m")]
    Malformed,
    #[error("a duration this long cannot be kept")]
    TooLong,
    #[error("a duration of nothing ends everything at once")]
    Zero,
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let (mut rest, mut total, mut last) = (text, 0_u64, u64::MAX);
        while !rest.is_empty() {
            let (digits, behind) = split_number(rest);
            let (letters, next) = behind
                .split_at(behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len()));
            let unit = match letters {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(SpanError::Malformed),
            };
            // `30m1h` and `1m1m` are slips, not sums.
            if digits.is_empty() || unit >= last {
                return Err(SpanError::Malformed);
            }
            let count: u64 = digits.parse().map_err(|_cause| SpanError::TooLong)?;
            let part = count.checked_mul(unit).ok_or(SpanError::TooLong)?;
            total = total.checked_add(part).ok_or(SpanError::TooLong)?;
            (rest, last) = (next, unit);
        }
        match total {
            0 if text.is_empty() => Err(SpanError::Malformed),
            0 => Err(SpanError::Zero),
            millis => Ok(Self(Duration::from_millis(millis))),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        for (unit, letters) in
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")]
        {
            if rest >= unit {
                write!(f, "{}{letters}", rest / unit)?;
                rest %= unit;
            }
        }
        Ok(())
    }
}

/// A share of the machine's processors, in thousandths of one: `2`, `0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus {
    pub thousandths: u32,
}

/// A text that is no number of processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a number of processors is above 0 and has at most three digits behind the point, like 1.5"
)]
pub struct CpusError;

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, CpusError> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || part.len() > 3 {
            return Err(CpusError);
        }
        let whole: u32 = whole.parse().map_err(|_cause| CpusError)?;
        let part: u32 = format!("{part:0<3}").parse().map_err(|_cause| CpusError)?;
        let thousandths = whole.checked_mul(1_000).and_then(|whole| whole.checked_add(part));
        match thousandths {
            Some(0) | None => Err(CpusError),
            Some(thousandths) => Ok(Self { thousandths }),
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.thousandths / 1_000, self.thousandths % 1_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0'))
    }
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_read_back() {
        for (text, bytes, shown) in [
            ("4G", 4 << 30, "4G"),
            ("4GiB", 4 << 30, "4G"),
            ("512MB", 512 << 20, "512M"),
            ("1024k", 1 << 20, "1M"),
            ("1500", 1500, "1500"),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
            assert_eq!(ByteSize(bytes).to_string(), shown);
        }
        for text in ["", "G", "-1G", "1.5G", "4 G", "4X", "4Gb"] {
            assert_eq!(text.parse::<ByteSize>(), Err(SizeError::Malformed), "{text:?}");
        }
        assert_eq!("0M".parse::<ByteSize>(), Err(SizeError::Zero));
        assert_eq!("99999999T".parse::<ByteSize>(), Err(SizeError::TooLarge));
    }

    #[test]
    fn durations_are_parts_from_large_to_small() {
        for (text, millis) in
            [("45m", 2_700_000), ("1h30m", 5_400_000), ("250ms", 250), ("1d", 86_400_000)]
        {
            let span = Span(Duration::from_millis(millis));
            assert_eq!(text.parse(), Ok(span), "{text}");
            assert_eq!(span.to_string(), text);
        }
        for text in ["", "45", "m", "30m1h", "1m1m", "-1s", "1.5h", "1 h", "1w"] {
            assert_eq!(text.parse::<Span>(), Err(SpanError::Malformed), "{text:?}");
        }
        assert_eq!("0s".parse::<Span>(), Err(SpanError::Zero));
        assert_eq!("999999999999999999d".parse::<Span>(), Err(SpanError::TooLong));
    }

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, thousandths) in [("2", 2_000), ("0.5", 500), ("1.25", 1_250), ("0.001", 1)] {
            assert_eq!(text.parse(), Ok(Cpus { thousandths }), "{text}");
            assert_eq!(Cpus { thousandths }.to_string(), text);
        }
        for text in ["", "0", "0.0", "-1", "1.2345", ".5", "1.", "nan", "99999999"] {
            assert_eq!(text.parse::<Cpus>(), Err(CpusError), "{text:?}");
        }
    }
}
