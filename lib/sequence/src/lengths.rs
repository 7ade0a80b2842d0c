//! The distribution of protein lengths.

use plmkit_contract::{LengthBin, LengthSummary, length_bin_edges};

/// Adds up lengths in residues.
#[derive(Clone, Debug)]
pub(crate) struct Lengths {
    bins: Vec<LengthBin>,
    min: u64,
    max: u64,
    sum: u64,
    count: u64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            bins: length_bin_edges()
                .map(|from| LengthBin { from, count: 0 })
                .collect(),
            min: u64::MAX,
            max: 0,
            sum: 0,
            count: 0,
        }
    }
}

impl Lengths {
    pub(crate) fn add(&mut self, length: u64) {
        // The first bin starts at 0, so that there is one for every length.
        let bin = self.bins.partition_point(|bin| bin.from <= length) - 1;
        self.bins[bin].count += 1;
        self.min = self.min.min(length);
        self.max = self.max.max(length);
        self.sum += length;
        self.count += 1;
    }

    pub(crate) fn summary(self) -> LengthSummary {
        let any = self.count > 0;
        LengthSummary {
            min: any.then_some(self.min),
            max: any.then_some(self.max),
            mean: any.then(|| self.sum as f64 / self.count as f64),
            histogram: self.bins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_fall_into_the_bin_that_starts_at_or_below_them() {
        let mut lengths = Lengths::default();
        for length in [1, 49, 50, 1999, 2000, 10_000_000] {
            lengths.add(length);
        }
        let summary = lengths.summary();
        assert_eq!((summary.min, summary.max), (Some(1), Some(10_000_000)));
        assert_eq!(summary.mean, Some(10_004_099.0 / 6.0));
        let filled: Vec<(u64, u64)> = summary
            .histogram
            .iter()
            .filter(|bin| bin.count > 0)
            .map(|bin| (bin.from, bin.count))
            .collect();
        assert_eq!(
            filled,
            [(0, 2), (50, 1), (1000, 1), (2000, 1), (128_000, 1)]
        );
    }

    #[test]
    fn nothing_has_no_mean() {
        let summary = Lengths::default().summary();
        assert_eq!((summary.min, summary.max, summary.mean), (None, None, None));
    }
}
