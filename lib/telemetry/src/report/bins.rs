//! A line over an axis of unknown length, in memory of a known size.

/// The most bins: more than a picture in print tells apart.
const MOST: usize = 512;

/// Values over an axis that begins at 0, in bins of one width. Where the bins run out, two and two become one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    width: f64,
    bins: Vec<Bin>,
}

/// What fell into a bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bin {
    /// Where the bin begins and ends.
    pub(super) from: f64,
    pub(super) to: f64,
    /// The sum of the values.
    pub(super) sum: f64,
    /// Values.
    pub(super) count: u64,
    /// The least value.
    pub(super) min: f64,
}

impl Bin {
    fn empty(from: f64, to: f64) -> Self {
        Self {
            from,
            to,
            sum: 0.0,
            count: 0,
            min: f64::INFINITY,
        }
    }

    fn merge(self, next: Self) -> Self {
        Self {
            from: self.from,
            to: next.to,
            sum: self.sum + next.sum,
            count: self.count + next.count,
            min: self.min.min(next.min),
        }
    }
}

impl Bins {
    /// Bins that are `width` wide as long as they suffice.
    pub(super) fn new(width: f64) -> Self {
        Self {
            width,
            bins: Vec::new(),
        }
    }

    /// Adds a value at a place that is finite and not negative.
    pub(super) fn add(&mut self, at: f64, value: f64) {
        let bin = self.bin(at);
        bin.sum += value;
        bin.count += 1;
        bin.min = bin.min.min(value);
    }

    /// Adds an amount, evenly from one place to another. It counts as one value where it ends.
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

    /// The bins from 0 to the last that holds something, empty ones included.
    pub(super) fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// The bin at a place, made if need be.
    fn bin(&mut self, at: f64) -> &mut Bin {
        while at / self.width >= MOST as f64 {
            self.width *= 2.0;
            let pairs = self.bins.chunks(2).map(|pair| match pair {
                [one, next] => one.merge(*next),
                _ => Bin {
                    to: pair[0].from + self.width,
                    ..pair[0]
                },
            });
            self.bins = pairs.collect();
        }
        let index = (at / self.width) as usize;
        while self.bins.len() <= index {
            let from = self.bins.len() as f64 * self.width;
            self.bins.push(Bin::empty(from, from + self.width));
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
        for at in 0..10 * MOST {
            bins.add(at as f64, 2.0);
        }
        let found = bins.bins();
        assert_eq!(found.len(), 10 * MOST / 16);
        let contents = found.iter().map(|bin| (bin.count, bin.sum));
        assert_eq!(contents.collect::<Vec<_>>(), vec![(16, 32.0); found.len()]);
        assert_eq!((found[1].from, found[1].to), (16.0, 32.0));
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

    #[test]
    fn the_longest_run_that_can_be_fits() {
        let mut bins = Bins::new(0.1);
        bins.add(0.0, 1.0);
        bins.spread(0.0, 1e13, 1.0);
        assert!(bins.bins().len() <= MOST);
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
            prop_assert!(bins.bins().len() <= MOST);
        }
    }
}
