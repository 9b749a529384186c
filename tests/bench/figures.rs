//! What is said of many measurements: one of them, by its rank.

use std::time::Duration;

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    percentile(values, 50)
}

/// The value that `percent` of `values` do not exceed; at 100 the greatest.
pub(crate) fn percentile(values: impl IntoIterator<Item = f64>, percent: usize) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(rank).copied().unwrap_or(f64::NAN)
}

pub(crate) fn millis(taken: Duration) -> f64 {
    taken.as_secs_f64() * 1000.0
}
