//! Percentiles of values that come one at a time.

use std::collections::BTreeMap;

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
    /// Adds a value.
    pub(super) fn add(&mut self, value: f64, weight: i64) {
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        let bin = value.abs().to_bits() >> self.lost_bits;
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
