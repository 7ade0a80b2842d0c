//! Running means.

/// The mean, sum, least and greatest of values that come one at a time, each with a weight, such as the microseconds that it
/// stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The number of values.
    pub count: u64,
    /// The sum of the weights.
    pub weight: i64,
    /// The sum of the values, each times its weight.
    pub sum: f64,
    average: f64,
    /// The greatest value.
    pub max: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
}

impl Mean {
    /// Adds a value with the weight 1.
    pub fn add(&mut self, value: f64) {
        self.add_weighted(value, 1);
    }

    /// Adds a value with a weight, more than 0.
    pub fn add_weighted(&mut self, value: f64, weight: i64) {
        self.merge(&Self {
            count: 1,
            weight,
            sum: value * weight as f64,
            average: value,
            max: Some(value),
            min: Some(value),
        });
    }

    /// Adds the values of another.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.count += other.count;
        self.weight = self.weight.saturating_add(other.weight);
        self.sum += other.sum;
        // By increments (West 1979): the mean of equal values is that value, on either side of a threshold.
        let part = other.weight as f64 / self.weight as f64;
        self.average += (other.average - self.average) * part;
        let both = |one: Option<f64>, two: Option<f64>, of: fn(f64, f64) -> f64| {
            one.map_or(two, |one| two.map(|two| of(one, two)))
        };
        self.max = both(self.max, other.max, f64::max);
        self.min = both(self.min, other.min, f64::min);
    }

    /// Returns the mean, or `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.average)
    }
}

impl Extend<f64> for Mean {
    fn extend<T: IntoIterator<Item = f64>>(&mut self, values: T) {
        values.into_iter().for_each(|value| self.add(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        let figures = |values: &[f64]| {
            let mut mean = Mean::default();
            mean.extend(values.iter().copied());
            (mean.mean(), mean.min, mean.max)
        };
        assert_eq!(figures(&[]), (None, None, None));
        assert_eq!(figures(&[3.0, 1.0]), (Some(2.0), Some(1.0), Some(3.0)));
        assert_eq!(figures(&[0.85; 1000]), (Some(0.85), Some(0.85), Some(0.85)));
        assert!((0.85 - [0.85; 1000].iter().sum::<f64>() / 1000.0).abs() > 0.0);
    }
}
