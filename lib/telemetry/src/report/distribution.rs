//! Distributions of the figures of batches.

use serde::Serialize;

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;

use super::weights::Weights;

/// The most different values that are kept.
const MAX_VALUES: usize = 4096;

/// A figure over the batches of a run. `pN` is the least value that N % of the batches do not exceed. It is exact up to 4,096
/// different values, and beyond within about half a percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// A figure of batches, in bounded memory.
#[derive(Clone, Debug, Default)]
struct Values {
    mean: Mean,
    weights: Weights,
}

impl Values {
    fn add(&mut self, value: f64) {
        // No figure is -0.
        let value = value.max(0.0) + 0.0;
        self.mean.add(value);
        self.weights.add(value, 1);
        self.weights.limit(MAX_VALUES);
    }

    fn finish(&self) -> Option<BatchDistribution> {
        Some(BatchDistribution {
            batches: self.mean.count(),
            min: self.mean.min()?,
            p5: self.weights.percentile(5)?,
            p50: self.weights.percentile(50)?,
            p95: self.weights.percentile(95)?,
            max: self.mean.max()?,
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
        assert!(count.weights.bins.len() <= MAX_VALUES);
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
