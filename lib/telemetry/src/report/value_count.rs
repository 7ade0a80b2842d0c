//! One value of a GPU over time.

use serde::Serialize;

use super::coverage::{coverage, is_enough};

/// A value over time. Figures are `None` below half coverage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ValueRange {
    /// The share of the time that readings of this value stand for.
    pub coverage: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
    /// The mean, weighted by time.
    pub mean: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
}

/// A value over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueCount {
    pub(super) readings: u64,
    pub(super) us: i64,
    mean: f64,
    min: f64,
    /// The greatest value.
    pub(super) max: f64,
}

impl Default for ValueCount {
    fn default() -> Self {
        Self {
            readings: 0,
            us: 0,
            mean: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

impl ValueCount {
    /// Adds a value that stands for some microseconds.
    pub(super) fn add(&mut self, value: f64, us: i64) {
        self.readings += 1;
        self.us = self.us.saturating_add(us);
        // By increments (West 1979): the mean of equal values is that value, on either side of a threshold.
        self.mean += (value - self.mean) * (us as f64 / self.us as f64);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns the figures over a time.
    pub(super) fn range(&self, time_us: i64) -> ValueRange {
        let coverage = coverage(self.us, time_us);
        let figure = |value: f64| Some(value).filter(|_| self.us > 0 && is_enough(coverage));
        ValueRange {
            coverage,
            min: figure(self.min),
            mean: figure(self.mean),
            max: figure(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(values: impl IntoIterator<Item = (f64, i64)>) -> ValueCount {
        let mut count = ValueCount::default();
        values
            .into_iter()
            .for_each(|(value, us)| count.add(value, us));
        count
    }

    #[test]
    fn twenty_seconds_at_20_ms_and_twenty_at_1_s_are_equal_halves() {
        let fast = (0..1000).map(|_| (100.0, 20_000));
        let slow = (0..20).map(|_| (0.0, 1_000_000));
        let found = count(fast.chain(slow)).range(40_000_000);
        assert!((found.mean.unwrap() - 50.0).abs() < 1e-12, "{found:?}");
        assert_eq!((found.min, found.max), (Some(0.0), Some(100.0)));
    }

    #[test]
    fn below_half_coverage_only_the_coverage_is_known() {
        let count = count([(7.0, 499)]);
        let found = count.range(1000);
        let figures = (found.coverage, found.min, found.mean, found.max);
        assert_eq!(figures, (Some(0.499), None, None, None));
        assert_eq!(count.range(998).mean, Some(7.0));
    }

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        let count = count((1..1000).map(|us| (0.85, us)));
        assert_eq!(count.range(1000).mean, Some(0.85));
    }
}
