//! How long calls took, in a few numbers.

use serde::{Deserialize, Serialize};

/// Half of the calls took at most `median_ms`, nine of ten at most `p90_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub median_ms: u64,
    pub p90_ms: u64,
    pub max_ms: u64,
}

impl Latency {
    /// `None` when there was nothing to measure.
    pub(crate) fn of(mut durations: Vec<u64>) -> Option<Self> {
        durations.sort_unstable();
        let max_ms = durations.last().copied()?;
        // The nearest rank: the smallest value that so many are not above.
        let rank = |percent: usize| {
            let place = (durations.len() * percent).div_ceil(100).max(1) - 1;
            durations.get(place).copied().unwrap_or(max_ms)
        };
        Some(Self { median_ms: rank(50), p90_ms: rank(90), max_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_values_that_were_measured() {
        let latency = |median_ms, p90_ms, max_ms| Some(Latency { median_ms, p90_ms, max_ms });
        assert_eq!(Latency::of(vec![]), None);
        assert_eq!(Latency::of(vec![7]), latency(7, 7, 7));
        assert_eq!(Latency::of(vec![9, 1]), latency(1, 9, 9));
        assert_eq!(Latency::of((1..=100).rev().collect()), latency(50, 90, 100));
    }
}
