//! A value over an axis of unknown length, in bounded memory.

/// The most bins: more than a printed chart can show.
const MAX_BINS: usize = 256;

/// Means of a value over seconds, in bins of equal width: half a second at first. When the bins run out, pairs are merged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    width: f64,
    /// How much of each bin is known, and the value times that.
    bins: Vec<[f64; 2]>,
}

impl Default for Bins {
    fn default() -> Self {
        Self {
            width: 0.5,
            bins: Vec::new(),
        }
    }
}

impl Bins {
    /// Adds the value between two positions, which are finite and not negative.
    pub(super) fn add(&mut self, from: f64, to: f64, value: f64) {
        while to / self.width >= MAX_BINS as f64 {
            self.width *= 2.0;
            let pairs = self.bins.chunks(2);
            let merged = pairs.map(|pair| {
                pair.iter()
                    .fold([0.0; 2], |sum, bin| [sum[0] + bin[0], sum[1] + bin[1]])
            });
            self.bins = merged.collect();
        }
        let last = (to / self.width) as usize;
        self.bins.resize(self.bins.len().max(last + 1), [0.0; 2]);
        for place in (from / self.width) as usize..=last {
            let start = place as f64 * self.width;
            let known = to.min(start + self.width) - from.max(start);
            if known > 0.0 {
                self.bins[place][0] += known;
                self.bins[place][1] += known * value;
            }
        }
    }

    /// Returns the ends and the mean of each bin with values. A bin that is known in part is shorter; where values are of one time, they
    /// add up.
    pub(super) fn means(&self) -> Vec<(f64, f64, f64)> {
        let bins = self.bins.iter().enumerate();
        let known = bins.filter(|(_, [known, _])| *known > 0.0);
        known
            .map(|(place, [known, sum])| {
                let from = place as f64 * self.width;
                let length = known.min(self.width);
                (from, from + length, sum / length)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_axis_keeps_its_means_and_its_gaps() {
        let mut bins = Bins::default();
        bins.add(0.0, 0.75, 2.0);
        bins.add(0.75, 1.0, 4.0);
        assert_eq!(bins.means(), [(0.0, 0.5, 2.0), (0.5, 1.0, 3.0)]);
        bins.add(1000.0, 1000.0, 7.0);
        bins.add(1000.0, 1001.0, 7.0);
        assert_eq!(bins.means(), [(0.0, 1.0, 2.5), (1000.0, 1001.0, 7.0)]);
    }
}
