//! Pairs of measurements: with and without what is measured, one after the other.

use std::fmt;

use crate::figures::median;

/// What something took, in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    pub(crate) fn add(&mut self, own: f64, other: f64) {
        self.0.push((own, other));
    }
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, other) = (median(self.0.iter().map(|p| p.0)), median(self.0.iter().map(|p| p.1)));
        let ratio = median(self.0.iter().map(|(own, other)| own / other));
        let pairs = self.0.len();
        write!(f, "{own:.1} ms, without {other:.1} ms, ratio {ratio:.3} ({pairs} pairs)")
    }
}
