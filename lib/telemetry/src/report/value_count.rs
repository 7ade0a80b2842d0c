//! One value of a GPU over time.

use std::collections::BTreeMap;

use serde::Serialize;

use super::coverage::{coverage, is_enough};

/// Significant bits of a value in a distribution: whole numbers below 8,192 are exact.
pub(super) const WHOLE: u32 = 13;

/// Significant bits of a value that has a fraction or many digits: exact to one part in 1,024.
pub(super) const ROUNDED: u32 = 10;

/// How a value was distributed over time: a percentile is the least value that was not exceeded for so much of the time.
/// Figures are `None` below half coverage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimeDistribution {
    /// The share of the time that readings of this value stand for.
    pub coverage: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
    /// The 5th percentile. Percentiles are exact for whole numbers below 8,192, else to one part in 1,024.
    pub p5: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
}

/// A mean weighted by time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimedMean {
    pub(super) readings: u64,
    pub(super) us: i64,
    mean: f64,
}

impl TimedMean {
    /// Adds a value that stands for some microseconds.
    pub(super) fn add(&mut self, value: f64, us: i64) {
        self.readings += 1;
        self.us += us;
        // By increments (West 1979): the mean of equal values is that value, on either side of a threshold.
        self.mean += (value - self.mean) * (us as f64 / self.us as f64);
    }

    /// Returns the mean, if the value was seen for enough of the time.
    pub(super) fn mean(&self, time_us: i64) -> Option<f64> {
        let enough = self.us > 0 && is_enough(coverage(self.us, time_us));
        enough.then_some(self.mean)
    }
}

/// The times of a value, by its size.
#[derive(Clone, Debug)]
pub(super) struct ValueCount {
    pub(super) mean: TimedMean,
    bits: u32,
    min: f64,
    max: f64,
    /// Microseconds by the rounded value, whose bits are in the order of the values.
    us: BTreeMap<u64, i64>,
}

impl ValueCount {
    /// `bits` is [`WHOLE`] or [`ROUNDED`].
    pub(super) fn new(bits: u32) -> Self {
        Self {
            mean: TimedMean::default(),
            bits,
            min: f64::INFINITY,
            max: 0.0,
            us: BTreeMap::new(),
        }
    }

    /// Adds a value, which must not be negative, that stands for some microseconds.
    pub(super) fn add(&mut self, value: f64, us: i64) {
        self.mean.add(value, us);
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        *self.us.entry(rounded(value, self.bits)).or_default() += us;
    }

    /// Returns the greatest value.
    pub(super) fn max(&self) -> Option<f64> {
        (self.mean.us > 0).then_some(self.max)
    }

    /// Returns the distribution over a time; `None` if the value was never seen.
    pub(super) fn distribution(&self, time_us: i64) -> Option<TimeDistribution> {
        let total_us = self.mean.us;
        let coverage = (total_us > 0).then(|| coverage(total_us, time_us))?;
        if !is_enough(coverage) {
            return Some(TimeDistribution {
                coverage,
                ..TimeDistribution::default()
            });
        }
        let percentile = |percent: i64| {
            let mut below_us = 0;
            let mut values = self.us.iter();
            let found = values.find(|(_, us)| {
                below_us += **us;
                i128::from(below_us) * 100 >= i128::from(total_us) * i128::from(percent)
            });
            found.map(|(bits, _)| f64::from_bits(*bits).clamp(self.min, self.max))
        };
        Some(TimeDistribution {
            coverage,
            min: Some(self.min),
            p5: percentile(5),
            p50: percentile(50),
            p95: percentile(95),
            max: Some(self.max),
        })
    }
}

/// Returns the bits of a value that is rounded to so many significant bits.
fn rounded(value: f64, bits: u32) -> u64 {
    let dropped = f64::MANTISSA_DIGITS - bits;
    ((value.abs().to_bits() + (1 << (dropped - 1))) >> dropped) << dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(bits: u32, values: impl IntoIterator<Item = (f64, i64)>) -> ValueCount {
        let mut count = ValueCount::new(bits);
        values
            .into_iter()
            .for_each(|(value, us)| count.add(value, us));
        count
    }

    #[test]
    fn twenty_seconds_at_20_ms_and_twenty_at_1_s_are_equal_halves() {
        let fast = (0..1000).map(|_| (100.0, 20_000));
        let slow = (0..20).map(|_| (0.0, 1_000_000));
        let count = count(WHOLE, fast.chain(slow));
        let mean = count.mean.mean(40_000_000).unwrap();
        assert!((mean - 50.0).abs() < 1e-12, "{mean}");
        let distribution = count.distribution(40_000_000).unwrap();
        let found = (distribution.p5, distribution.p50, distribution.p95);
        assert_eq!(found, (Some(0.0), Some(0.0), Some(100.0)));
    }

    #[test]
    fn a_percentile_is_the_least_value_that_was_not_exceeded_for_so_long() {
        let values = (1..=100).map(|value| (f64::from(value), 10));
        let expected = TimeDistribution {
            coverage: Some(1.0),
            min: Some(1.0),
            p5: Some(5.0),
            p50: Some(50.0),
            p95: Some(95.0),
            max: Some(100.0),
        };
        assert_eq!(count(WHOLE, values).distribution(1000), Some(expected));
        assert_eq!(count(WHOLE, []).distribution(1000), None);
    }

    #[test]
    fn below_half_coverage_only_the_coverage_is_known() {
        let count = count(WHOLE, [(7.0, 499)]);
        let found = count.distribution(1000).unwrap();
        assert_eq!(
            (found.coverage, found.p50, found.max),
            (Some(0.499), None, None)
        );
        assert_eq!(
            (count.mean.mean(1000), count.mean.mean(998)),
            (None, Some(7.0))
        );
    }

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

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        let count = count(ROUNDED, (1..1000).map(|us| (0.85, us)));
        assert_eq!(count.mean.mean(1000), Some(0.85));
    }
}
