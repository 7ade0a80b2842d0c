//! One value of a GPU over time.

use serde::Serialize;

use super::coverage::{coverage, is_enough};
use super::weights::Weights;

/// How a value was distributed over time: a percentile is the least value that was not exceeded for so much of the time.
/// Figures are `None` below half coverage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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
    /// Adds a value, if it is known, that stands for some microseconds.
    pub(super) fn add(&mut self, value: Option<f64>, us: i64) {
        let Some(value) = value else { return };
        self.readings += 1;
        self.us = self.us.saturating_add(us);
        // By increments (West 1979): the mean of equal values is that value, on either side of a threshold.
        self.mean += (value - self.mean) * (us as f64 / self.us as f64);
    }

    /// Returns the mean, if the value was seen for enough of the time.
    pub(super) fn mean(&self, time_us: i64) -> Option<f64> {
        let enough = self.us > 0 && is_enough(coverage(self.us, time_us));
        enough.then_some(self.mean)
    }
}

/// A value over time.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueCount {
    pub(super) mean: TimedMean,
    values: Weights,
}

impl ValueCount {
    /// Adds a value, if it is known, that stands for some microseconds. `bits` are those of [`Weights::add`].
    pub(super) fn add(&mut self, value: Option<f64>, us: i64, bits: u32) {
        self.mean.add(value, us);
        if let Some(value) = value {
            self.values.add(value, us, bits);
        }
    }

    /// Returns the greatest value.
    pub(super) fn max(&self) -> Option<f64> {
        self.values.max()
    }

    /// Returns the distribution over a time, in a unit of so much; `None` if the value was never seen.
    pub(super) fn distribution(&self, time_us: i64, unit: f64) -> Option<TimeDistribution> {
        let coverage = (self.mean.us > 0).then(|| coverage(self.mean.us, time_us))?;
        let figure = |value: Option<f64>| Some(value? / unit).filter(|_| is_enough(coverage));
        Some(TimeDistribution {
            coverage,
            min: figure(self.values.min()),
            p5: figure(self.values.percentile(5)),
            p50: figure(self.values.percentile(50)),
            p95: figure(self.values.percentile(95)),
            max: figure(self.values.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::weights::{ROUNDED, WHOLE};

    fn count(bits: u32, values: impl IntoIterator<Item = (f64, i64)>) -> ValueCount {
        let mut count = ValueCount::default();
        values
            .into_iter()
            .for_each(|(value, us)| count.add(Some(value), us, bits));
        count
    }

    #[test]
    fn twenty_seconds_at_20_ms_and_twenty_at_1_s_are_equal_halves() {
        let fast = (0..1000).map(|_| (100.0, 20_000));
        let slow = (0..20).map(|_| (0.0, 1_000_000));
        let count = count(WHOLE, fast.chain(slow));
        let mean = count.mean.mean(40_000_000).unwrap();
        assert!((mean - 50.0).abs() < 1e-12, "{mean}");
        let distribution = count.distribution(40_000_000, 1.0).unwrap();
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
        assert_eq!(count(WHOLE, values).distribution(1000, 1.0), Some(expected));
        assert_eq!(count(WHOLE, []).distribution(1000, 1.0), None);
    }

    #[test]
    fn below_half_coverage_only_the_coverage_is_known() {
        let count = count(WHOLE, [(7.0, 499)]);
        let found = count.distribution(1000, 1.0).unwrap();
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
    fn the_mean_of_equal_values_is_that_value() {
        let count = count(ROUNDED, (1..1000).map(|us| (0.85, us)));
        assert_eq!(count.mean.mean(1000), Some(0.85));
    }
}
