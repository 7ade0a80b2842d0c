//! A line over an axis of unknown length, in bounded memory.

/// The most bins: more than a printed chart can show.
const MAX_BINS: usize = 512;

/// Values over an axis that starts at 0, in bins of equal width. When the bins run out, pairs are merged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    width: f64,
    bins: Vec<Bin>,
}

/// The values of a bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bin {
    /// The start of the bin.
    pub(super) from: f64,
    /// The end of the bin.
    pub(super) to: f64,
    /// The sum of the values.
    pub(super) sum: f64,
    /// The number of values.
    pub(super) count: u64,
    /// The least value.
    pub(super) min: f64,
    /// The greatest value.
    pub(super) max: f64,
}

impl Bin {
    /// Merges consecutive bins.
    fn merged(bins: &[Self]) -> Option<Self> {
        bins.iter().copied().reduce(|one, next| Self {
            from: one.from,
            to: next.to,
            sum: one.sum + next.sum,
            count: one.count + next.count,
            min: one.min.min(next.min),
            max: one.max.max(next.max),
        })
    }
}

impl Bins {
    /// Bins of this width, until they run out.
    pub(super) fn new(width: f64) -> Self {
        Self {
            width,
            bins: Vec::new(),
        }
    }

    /// Adds a value at a position, which must be finite and not negative.
    pub(super) fn add(&mut self, at: f64, value: f64) {
        let bin = self.bin(at);
        bin.sum += value;
        bin.count += 1;
        bin.min = bin.min.min(value);
        bin.max = bin.max.max(value);
    }

    /// Spreads an amount evenly between two positions. It counts as one value, at its end.
    pub(super) fn spread(&mut self, from: f64, to: f64, amount: f64) {
        let last = self.bin(to);
        last.count += 1;
        let last_from = last.from;
        if from >= to || from >= last_from {
            last.sum += amount;
            return;
        }
        let density = amount / (to - from);
        let first = (from / self.width) as usize;
        for bin in &mut self.bins[first..] {
            bin.sum += density * (bin.to.min(to) - bin.from.max(from)).max(0.0);
        }
    }

    /// Returns the bins from 0 to the last that has values, including empty ones.
    pub(super) fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// Returns the end of the last bin that has values.
    pub(super) fn end(&self) -> f64 {
        self.bins.last().map_or(0.0, |bin| bin.to)
    }

    /// Returns at most `most` bins, each of as many of these.
    pub(super) fn coarse(&self, most: usize) -> Vec<Bin> {
        let each = self.bins.len().div_ceil(most).max(1);
        self.bins.chunks(each).filter_map(Bin::merged).collect()
    }

    /// Returns the bin at a position; adds bins up to it.
    fn bin(&mut self, at: f64) -> &mut Bin {
        while at / self.width >= MAX_BINS as f64 {
            self.width *= 2.0;
            self.bins = self.bins.chunks(2).filter_map(Bin::merged).collect();
            // A single bin at the end was merged with an empty one.
            if let Some(last) = self.bins.last_mut() {
                last.to = last.from + self.width;
            }
        }
        let index = (at / self.width) as usize;
        while self.bins.len() <= index {
            let from = self.bins.len() as f64 * self.width;
            self.bins.push(Bin {
                from,
                to: from + self.width,
                sum: 0.0,
                count: 0,
                min: f64::INFINITY,
                max: f64::NEG_INFINITY,
            });
        }
        &mut self.bins[index]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bins_that_run_out_double_in_width_and_lose_nothing() {
        let mut bins = Bins::new(1.0);
        for at in 0..10 * MAX_BINS {
            bins.add(at as f64, 2.0);
        }
        let coarse = bins.coarse(100);
        assert_eq!((coarse.len(), coarse[79].to), (80, 5120.0));
        assert_eq!((coarse[0].sum, coarse[0].max), (128.0, 2.0));
        let found = bins.bins();
        assert_eq!(found.len(), 10 * MAX_BINS / 16);
        let contents = found.iter().map(|bin| (bin.count, bin.sum, bin.min));
        let expected = vec![(16, 32.0, 2.0); found.len()];
        assert_eq!(contents.collect::<Vec<_>>(), expected);
        assert_eq!((found[1].from, found[1].to), (16.0, 32.0));
        bins.spread(0.0, 1e13, 1.0);
        assert!(bins.bins().len() <= MAX_BINS, "the longest possible run");
    }

    #[test]
    fn an_amount_is_spread_over_the_time_that_it_took() {
        let mut bins = Bins::new(1.0);
        bins.spread(0.5, 3.0, 100.0);
        let sums: Vec<f64> = bins.bins().iter().map(|bin| bin.sum).collect();
        assert_eq!(sums, [20.0, 40.0, 40.0, 0.0]);
        bins.spread(3.2, 3.4, 7.0);
        bins.spread(9.0, 3.5, 1.0);
        assert_eq!((bins.bins()[3].sum, bins.bins()[3].count), (8.0, 3));
    }

    proptest! {
        #[test]
        fn sums_and_counts_stay(values in prop::collection::vec((0.0..1e6_f64, 0.0..10.0_f64, 0.0..9.0_f64), 0..60)) {
            let mut bins = Bins::new(0.01);
            for &(at, length, value) in &values {
                bins.spread((at - length).max(0.0), at, value);
            }
            let expected: f64 = values.iter().map(|&(_, _, value)| value).sum();
            let sum: f64 = bins.bins().iter().map(|bin| bin.sum).sum();
            prop_assert!((sum - expected).abs() <= 1e-9 * expected.max(1.0), "{sum} {expected}");
            prop_assert_eq!(bins.bins().iter().map(|bin| bin.count).sum::<u64>(), values.len() as u64);
            prop_assert!(bins.bins().len() <= MAX_BINS);
        }
    }
}
