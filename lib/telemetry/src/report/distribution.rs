//! Distributions of the figures of batches.

use serde::Serialize;

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;

/// The most different values that are kept.
const MAX_BINS: usize = 4096;

/// A figure over the batches of a run. `pN` is the least value that N % of the batches do not exceed. It is exact up to 4,096
/// different values, and beyond within about half a percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BatchDistribution {
    /// Batches with a known value.
    pub batches: u64,
    /// The least value.
    pub min: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The greatest value.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// The distributions of a run; `None` without a known value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BatchDistributions {
    /// How long the device waited for a batch, in ms.
    pub wait_ms: Option<BatchDistribution>,
    /// Forward pass and pooling of a batch, in ms.
    pub compute_ms: Option<BatchDistribution>,
    /// Tokens of a batch.
    pub tokens: Option<BatchDistribution>,
    /// Tokens of the longest sequence of a batch.
    pub longest: Option<BatchDistribution>,
}

/// The values of a run's batches, in the order of [`BatchDistributions`].
#[derive(Clone, Debug, Default)]
pub(super) struct DistributionsCount([Values; 4]);

impl DistributionsCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        let values = [
            batch.wait_ms,
            batch.compute_ms,
            Some(batch.tokens as f64),
            batch.longest.map(|longest| longest as f64),
        ];
        for (known, value) in self.0.iter_mut().zip(values) {
            if let Some(value) = value {
                known.add(value);
            }
        }
    }

    pub(super) fn finish(&self) -> BatchDistributions {
        let [wait_ms, compute_ms, tokens, longest] = self.0.each_ref().map(Values::finish);
        BatchDistributions {
            wait_ms,
            compute_ms,
            tokens,
            longest,
        }
    }
}

/// Values that are not negative, in bounded memory.
#[derive(Clone, Debug, Default)]
struct Values {
    mean: Mean,
    /// Counts by the bits of a value, without the lowest ones, in ascending order: bits of such numbers are ordered as they are.
    bins: Vec<(u64, u64)>,
    lost_bits: u32,
}

impl Values {
    fn add(&mut self, value: f64) {
        // The bits of -0 are those of a large number.
        let value = value.max(0.0) + 0.0;
        self.mean.add(value);
        let bits = value.to_bits() >> self.lost_bits;
        match self.bins.binary_search_by_key(&bits, |&(bits, _)| bits) {
            Ok(place) => self.bins[place].1 += 1,
            Err(place) => self.bins.insert(place, (bits, 1)),
        }
        if self.bins.len() > MAX_BINS {
            self.merge_bins();
        }
    }

    fn merge_bins(&mut self) {
        while self.bins.len() > MAX_BINS / 2 {
            self.lost_bits += 1;
            self.bins.iter_mut().for_each(|(bits, _)| *bits >>= 1);
            self.bins.dedup_by(|next, kept| {
                let is_same = next.0 == kept.0;
                kept.1 += if is_same { next.1 } else { 0 };
                is_same
            });
        }
    }

    fn finish(&self) -> Option<BatchDistribution> {
        let (batches, min, max) = (self.mean.count(), self.mean.min()?, self.mean.max()?);
        let percentile = |percent: u64| {
            let rank = (batches * percent).div_ceil(100).max(1);
            let mut counted = 0;
            let bin = self.bins.iter().find(|(_, count)| {
                counted += count;
                counted >= rank
            });
            let lower = bin.map_or(0, |(bits, _)| bits << self.lost_bits);
            let middle = lower + ((1_u64 << self.lost_bits) >> 1);
            f64::from_bits(middle).clamp(min, max)
        };
        Some(BatchDistribution {
            batches,
            min,
            p5: percentile(5),
            p50: percentile(50),
            p95: percentile(95),
            max,
            mean: self.mean.mean()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distribution(values: impl IntoIterator<Item = f64>) -> BatchDistribution {
        let mut count = Values::default();
        values.into_iter().for_each(|value| count.add(value));
        assert!(count.bins.len() <= MAX_BINS);
        count.finish().unwrap()
    }

    #[test]
    fn percentiles_are_values_of_batches() {
        let found = distribution((1..=20).rev().map(f64::from));
        let expected = [1.0, 1.0, 10.0, 19.0, 20.0, 10.5];
        let figures = |d: &BatchDistribution| [d.min, d.p5, d.p50, d.p95, d.max, d.mean];
        assert_eq!((figures(&found), found.batches), (expected, 20));
        let zero = distribution([-0.0]);
        assert_eq!((zero.p50, zero.p95, zero.max), (0.0, 0.0, 0.0));
        assert_eq!(Values::default().finish(), None);
    }

    #[test]
    fn many_different_values_are_merged_within_half_a_percent() {
        // From 1 µs to 1,000 s.
        let value = |number: u32| 1e-3 * 10_f64.powf(f64::from(number) / 100_000.0 * 9.0);
        let found = distribution((0..=100_000).map(value));
        for (percentile, number) in [(found.p5, 5000), (found.p50, 50_000), (found.p95, 95_000)] {
            assert!((percentile / value(number) - 1.0).abs() < 0.01, "{found:?}");
        }
        assert_eq!((found.min, found.max), (value(0), value(100_000)));
    }
}
