//! Running means.

/// The mean, sum and greatest of values that come one at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    pub(super) count: u64,
    pub(super) sum: f64,
    average: f64,
    pub(super) max: Option<f64>,
    pub(super) min: Option<f64>,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        // By increments (Welford 1962): the mean of equal values is that value, on either side of a threshold.
        self.average += (value - self.average) / self.count as f64;
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
    }

    /// Takes in the values of another.
    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.average += (other.average - self.average) * (other.count as f64 / self.count as f64);
        let both = |pick: fn(f64, f64) -> f64, one: Option<f64>, other: Option<f64>| {
            one.zip(other)
                .map(|(one, other)| pick(one, other))
                .or(one)
                .or(other)
        };
        self.max = both(f64::max, self.max, other.max);
        self.min = both(f64::min, self.min, other.min);
    }

    /// `None` of no values.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.average)
    }
}

/// `part` of `whole`; `None` where there is no whole.
pub(super) fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        let mut mean = Mean::default();
        (0..1000).for_each(|_| mean.add(0.85));
        assert_eq!(mean.mean(), Some(0.85));
        assert!(
            (mean.sum / 1000.0 - 0.85).abs() > 0.0,
            "the plain mean is another"
        );
    }

    #[test]
    fn values_that_are_merged_count_as_if_they_had_come_one_at_a_time() {
        let of = |values: &[f64]| {
            let mut mean = Mean::default();
            for &value in values {
                mean.add(value);
            }
            mean
        };
        let mut merged = of(&[]);
        merged.merge(&of(&[1.0, 5.0]));
        merged.merge(&of(&[]));
        merged.merge(&of(&[6.0]));
        assert_eq!(
            (merged.count, merged.sum, merged.mean()),
            (3, 12.0, Some(4.0))
        );
        assert_eq!((merged.min, merged.max), (Some(1.0), Some(6.0)));
        let mut equal = of(&[0.85; 7]);
        equal.merge(&of(&[0.85; 3]));
        assert_eq!(equal.mean(), Some(0.85));
    }

    #[test]
    fn of_nothing_there_is_no_mean() {
        let mut mean = Mean::default();
        assert_eq!((mean.mean(), mean.min, mean.max), (None, None, None));
        mean.add(3.0);
        mean.add(1.0);
        assert_eq!(
            (mean.mean(), mean.min, mean.max),
            (Some(2.0), Some(1.0), Some(3.0))
        );
        assert_eq!((share(1.0, 0.0), share(1.0, 4.0)), (None, Some(0.25)));
    }
}
