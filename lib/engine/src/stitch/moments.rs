//! Pooling of vectors that arrive one by one.

use plmkit_contract::Pooling;

/// Weighted mean, maximum and standard deviation of vectors, channel by channel.
///
/// Welford's method (Technometrics 4, 1962) does not subtract large numbers from one another: channels of ESM-2 reach hundreds and
/// vary little.
#[derive(Debug)]
pub(crate) struct Moments {
    /// The sum of all weights.
    weight: f64,
    /// `(dim)`.
    mean: Vec<f64>,
    /// Sums of squared deviations from the mean: `(dim)`.
    squares: Vec<f64>,
    /// `(dim)`.
    max: Vec<f32>,
}

impl Moments {
    /// Starts with no vectors. Each will have `dim` values.
    pub(crate) fn new(dim: usize) -> Self {
        Self {
            weight: 0.0,
            mean: vec![0.0; dim],
            squares: vec![0.0; dim],
            max: vec![f32::NEG_INFINITY; dim],
        }
    }

    /// Adds a vector: `(dim)`.
    pub(crate) fn add(&mut self, vector: &[f32], weight: f64) {
        self.weight += weight;
        let share = weight / self.weight;
        let channels = vector.iter().zip(&mut self.mean).zip(&mut self.squares);
        for (((&value, mean), squares), max) in channels.zip(&mut self.max) {
            *max = max.max(value);
            let value = f64::from(value);
            let deviation = value - *mean;
            *mean += deviation * share;
            *squares += weight * deviation * (value - *mean);
        }
    }

    /// Returns a pooling of at least one vector: `(dim)`. That of [`Pooling::Bos`] is the mean of the windows' own vectors.
    pub(crate) fn pooled(&self, pool: Pooling) -> Vec<f32> {
        match pool {
            Pooling::Mean | Pooling::Bos => self.mean.iter().map(|&mean| mean as f32).collect(),
            Pooling::Max => self.max.clone(),
            // Divided by n, as for a protein that is computed at full length.
            Pooling::Std => {
                let variances = self.squares.iter().map(|sum| sum / self.weight);
                variances.map(|variance| variance.sqrt() as f32).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pooled(values: &[f32], pool: Pooling) -> f32 {
        let mut moments = Moments::new(1);
        for &value in values {
            moments.add(&[value], 1.0);
        }
        moments.pooled(pool)[0]
    }

    proptest! {
        #[test]
        fn are_those_of_two_passes(values in prop::collection::vec(-1e4_f32..1e4, 1..200)) {
            let count = values.len() as f64;
            let mean = values.iter().copied().map(f64::from).sum::<f64>() / count;
            let squares = values.iter().map(|&value| (f64::from(value) - mean).powi(2));
            let deviation = (squares.sum::<f64>() / count).sqrt();
            prop_assert!((f64::from(pooled(&values, Pooling::Mean)) - mean).abs() < 1e-2);
            prop_assert!((f64::from(pooled(&values, Pooling::Std)) - deviation).abs() < 1e-2);
            let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            prop_assert_eq!(pooled(&values, Pooling::Max).to_bits(), max.to_bits());
        }

        #[test]
        fn equal_vectors_do_not_deviate(value in -1e30_f32..1e30, count in 1_usize..300) {
            let values = vec![value; count];
            prop_assert!((pooled(&values, Pooling::Mean) - value).abs() <= 0.0);
            prop_assert!(pooled(&values, Pooling::Std) <= 0.0);
        }
    }

    #[test]
    fn small_deviations_of_large_values_keep_their_digits() {
        let values: Vec<f32> = (0..40_000u16).map(|i| 1000.0 + f32::from(i % 2)).collect();
        assert!((pooled(&values, Pooling::Mean) - 1000.5).abs() < 1e-4);
        assert!((pooled(&values, Pooling::Std) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn a_longer_window_weighs_more() {
        let mut moments = Moments::new(2);
        moments.add(&[1.0, 10.0], 300.0);
        moments.add(&[5.0, -10.0], 100.0);
        assert_eq!(moments.pooled(Pooling::Mean), [2.0, 5.0]);
    }
}
