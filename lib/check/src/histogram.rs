//! Distributions of positive numbers in a fixed resolution, so that those of many files add up to one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bins of the natural logarithm: neighbouring bins differ by 1 %.
const BINS_PER_UNIT: f64 = 100.0;

/// A histogram of positive numbers with bins of equal ratio.
///
/// It takes about 50 bytes for each bin in use: a few kilobytes for the norms of a hundred million vectors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Histogram {
    /// Values by the number of their bin.
    bins: BTreeMap<i32, u64>,
    total: u64,
}

/// The bin of a value. Zero has the bin of the smallest positive number.
fn bin_of(value: f64) -> i32 {
    (value.max(f64::MIN_POSITIVE).ln() * BINS_PER_UNIT).floor() as i32
}

/// The value in the middle of a bin.
fn value_of(bin: i32) -> f64 {
    ((f64::from(bin) + 0.5) / BINS_PER_UNIT).exp()
}

impl Histogram {
    pub(crate) fn add(&mut self, value: f64) {
        *self.bins.entry(bin_of(value)).or_default() += 1;
        self.total += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (&bin, &count) in &other.bins {
            *self.bins.entry(bin).or_default() += count;
        }
        self.total += other.total;
    }

    /// The number of values.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The value that a share of the values does not exceed, to 1 % (nearest rank); `None` where there are no values.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        self.quantile_bin(share).map(value_of)
    }

    fn quantile_bin(&self, share: f64) -> Option<i32> {
        let rank = ((share * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        self.bins.iter().find_map(|(&bin, &count)| {
            below += count;
            (below >= rank).then_some(bin)
        })
    }

    /// The scale of [`Scale::z`]: median and robust standard deviation, 1.4826 median absolute deviations, which is at least
    /// `least`. Both are of the logarithm. `None` where there are no values.
    pub(crate) fn scale(&self, least: f64) -> Option<Scale> {
        let median = self.quantile_bin(0.5)?;
        let mut deviations: BTreeMap<u32, u64> = BTreeMap::new();
        for (&bin, &count) in &self.bins {
            *deviations.entry(bin.abs_diff(median)).or_default() += count;
        }
        let mut below = 0;
        let (&deviation, _) = deviations.iter().find(|&(_, &count)| {
            below += count;
            2 * below >= self.total
        })?;
        let spread = (1.4826 * f64::from(deviation)).max(least * BINS_PER_UNIT);
        Some(Scale { median, spread })
    }

    /// The number of values whose [`Scale::z`] is below `low`, or above `high` if they are more than `least`.
    pub(crate) fn outside(&self, scale: Scale, low: f64, high: f64, least: f64) -> u64 {
        let outside = |bin: i32| {
            let z = scale.z_of_bin(bin);
            z < low || z > high && value_of(bin) > least
        };
        let bins = self.bins.iter().filter(|&(&bin, _)| outside(bin));
        bins.map(|(_, count)| count).sum()
    }
}

/// What values are measured in: see [`Histogram::scale`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// A bin.
    median: i32,
    /// In bins.
    spread: f64,
}

impl Scale {
    /// The robust z-score of a value: the distance of its logarithm from the median, in robust standard deviations.
    pub(crate) fn z(self, value: f64) -> f64 {
        self.z_of_bin(bin_of(value))
    }

    /// The value that is the median.
    pub(crate) fn median(self) -> f64 {
        value_of(self.median)
    }

    fn z_of_bin(self, bin: i32) -> f64 {
        f64::from(bin - self.median) / self.spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_percent_and_parts_add_up() {
        let (mut whole, mut low, mut high) = <(Histogram, Histogram, Histogram)>::default();
        for value in 1..=1000 {
            let value = f64::from(value);
            whole.add(value);
            (if value <= 300.0 { &mut low } else { &mut high }).add(value);
        }
        for (share, expected) in [
            (0.0, 1.0),
            (0.01, 10.0),
            (0.5, 500.0),
            (0.95, 950.0),
            (1.0, 1000.0),
        ] {
            let found = whole.quantile(share).expect("values");
            assert!((found / expected - 1.0).abs() <= 0.01, "{share}: {found}");
        }
        low.merge(&high);
        assert_eq!(low, whole);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn outliers_do_not_move_the_scale_that_finds_them() {
        let mut histogram = Histogram::default();
        for i in 0..1000 {
            histogram.add(10.0 * (1.0 + f64::from(i % 100) / 1000.0));
        }
        for outlier in [1e-3, 1e30, 1e30] {
            histogram.add(outlier);
        }
        let scale = histogram.scale(0.01).expect("values");
        assert_eq!(histogram.outside(scale, -6.0, 6.0, 0.0), 3);
        assert_eq!(histogram.outside(scale, -6.0, f64::MAX, 0.0), 1);
        assert!((scale.median() / 10.5 - 1.0).abs() < 0.01);
    }
}
