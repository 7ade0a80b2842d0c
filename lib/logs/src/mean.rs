//! Running means.

/// The mean, sum and greatest of values that come one at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    count: u64,
    sum: f64,
    average: f64,
    max: Option<f64>,
    min: Option<f64>,
}

impl Mean {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        // By increments (Welford 1962): the mean of equal values is that value, on either side of a threshold.
        self.average += (value - self.average) / self.count as f64;
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The greatest.
    pub fn max(&self) -> Option<f64> {
        self.max
    }

    /// The least.
    pub fn min(&self) -> Option<f64> {
        self.min
    }

    /// Their mean; `None` of no values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.average)
    }
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
    fn of_nothing_there_is_no_mean() {
        let mut mean = Mean::default();
        assert_eq!((mean.mean(), mean.min, mean.max), (None, None, None));
        mean.add(3.0);
        mean.add(1.0);
        assert_eq!(
            (mean.mean(), mean.min, mean.max),
            (Some(2.0), Some(1.0), Some(3.0))
        );
    }
}
