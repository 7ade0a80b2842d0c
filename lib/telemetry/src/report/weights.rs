//! Percentiles of values that come one at a time.

use std::collections::BTreeMap;

/// Significant bits of a value in a distribution: whole numbers below 8,192 are exact.
pub(super) const WHOLE: u32 = 13;

/// Significant bits of a value that has a fraction or many digits: exact to one part in 1,024.
pub(super) const ROUNDED: u32 = 10;

/// Significant bits of a value that is not rounded.
pub(super) const EXACT: u32 = f64::MANTISSA_DIGITS;

/// The weights of values that are not negative, in the order of the values.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    min: Option<f64>,
    max: Option<f64>,
    /// Weights by the bits of a value, without the lowest ones: bits of such numbers are in the order of the numbers.
    pub(super) bins: BTreeMap<u64, i64>,
    lost_bits: u32,
}

impl Weights {
    /// Adds a value, rounded to so many significant bits: [`WHOLE`], [`ROUNDED`] or [`EXACT`].
    pub(super) fn add(&mut self, value: f64, weight: i64, bits: u32) {
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        let bin = rounded(value, bits) >> self.lost_bits;
        let sum = self.bins.entry(bin).or_default();
        *sum = sum.saturating_add(weight);
    }

    /// Merges neighbours if there are more than `most` different values.
    pub(super) fn limit(&mut self, most: usize) {
        let is_full = self.bins.len() > most;
        while is_full && self.bins.len() > most / 2 {
            self.lost_bits += 1;
            for (bits, weight) in std::mem::take(&mut self.bins) {
                let sum = self.bins.entry(bits >> 1).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
    }

    /// Returns the least value.
    pub(super) fn min(&self) -> Option<f64> {
        self.min
    }

    /// Returns the greatest value.
    pub(super) fn max(&self) -> Option<f64> {
        self.max
    }

    /// Returns the least value that is not exceeded by so many percent of the weight.
    pub(super) fn percentile(&self, percent: i128) -> Option<f64> {
        let total: i128 = self.bins.values().copied().map(i128::from).sum();
        let mut counted = 0;
        let (bits, _) = self.bins.iter().find(|(_, weight)| {
            counted += i128::from(**weight);
            counted * 100 >= total * percent
        })?;
        let middle = (bits << self.lost_bits) + ((1_u64 << self.lost_bits) >> 1);
        Some(f64::from_bits(middle).clamp(self.min?, self.max?))
    }
}

/// Returns the bits of a value that is rounded to so many significant bits.
fn rounded(value: f64, bits: u32) -> u64 {
    let dropped = EXACT - bits;
    ((value.abs().to_bits() + ((1 << dropped) >> 1)) >> dropped) << dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_as_far_as_documented() {
        for value in 0..8192_u32 {
            let value = f64::from(value);
            assert_eq!(rounded(value, WHOLE), value.to_bits());
        }
        for value in [0.001, 1.0, 249.7, 251.234, 999.999, 81_920.5, 1e12] {
            let error = f64::from_bits(rounded(value, ROUNDED)) / value - 1.0;
            assert!(error.abs() <= 1.0 / 1024.0, "{value}: {error}");
        }
    }
}
