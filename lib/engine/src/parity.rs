//! Measured agreement of int8 vectors with f32 vectors.

use std::fmt;

use plmkit_contract::plural;
use serde::{Deserialize, Serialize};

/// The lowest accepted cosine of a sequence's mean vector.
const MEAN_FLOOR: f64 = 0.999;
/// The lowest accepted cosine of a residue vector. One residue in thousands attends equally to two others, and rounding decides
/// between them.
const RESIDUE_FLOOR: f64 = 0.98;

/// How close int8 vectors of the last layer are to f32 vectors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parity {
    /// Compared sequences.
    pub sequences: usize,
    /// Tokens of these sequences.
    pub tokens: usize,
    /// The lowest cosine of a mean vector.
    pub mean_cosine: f64,
    /// The lowest cosine that is accepted for a mean vector.
    pub mean_cosine_floor: f64,
    /// The lowest cosine of a residue vector.
    pub residue_cosine: f64,
    /// The lowest cosine that is accepted for a residue vector.
    pub residue_cosine_floor: f64,
}

impl Default for Parity {
    fn default() -> Self {
        Self {
            sequences: 0,
            tokens: 0,
            mean_cosine: 1.0,
            mean_cosine_floor: MEAN_FLOOR,
            residue_cosine: 1.0,
            residue_cosine_floor: RESIDUE_FLOOR,
        }
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded down, so that a cosine below its floor does not read like the floor.
        let floored = |cosine: f64| (cosine * 1e6).floor() / 1e6;
        if self.sequences == 0 {
            return f.write_str(
                "no sampled sequence has finite vectors in f32, so nothing was compared",
            );
        }
        write!(
            f,
            "over {} of the run, {}, the lowest cosine to f32 is {:.6} for a mean \
             vector (expected at least {}) and {:.6} for a residue vector (expected at least {})",
            plural(self.sequences, "sequence"),
            plural(self.tokens, "token"),
            floored(self.mean_cosine),
            self.mean_cosine_floor,
            floored(self.residue_cosine),
            self.residue_cosine_floor,
        )
    }
}

impl Parity {
    /// Whether something was compared and every cosine reaches its floor.
    pub(crate) fn suffices(&self) -> bool {
        self.sequences > 0
            && self.mean_cosine >= self.mean_cosine_floor
            && self.residue_cosine >= self.residue_cosine_floor
    }

    /// Compares the residue vectors of a sequence, `(residues, dim)`.
    pub(crate) fn compare(&mut self, expected: &[f32], found: &[f32], dim: usize) {
        // A sequence that f32 cannot compute is no measure.
        if !expected.iter().all(|value| value.is_finite()) {
            return;
        }
        self.sequences += 1;
        self.tokens += expected.len() / dim + 2;
        let (mut expected_sum, mut found_sum) = (vec![0.0; dim], vec![0.0; dim]);
        for (expected, found) in expected.chunks(dim).zip(found.chunks(dim)) {
            let [expected, found] = [expected, found].map(widen);
            self.residue_cosine = self.residue_cosine.min(cosine(&expected, &found));
            add(&mut expected_sum, &expected);
            add(&mut found_sum, &found);
        }
        // A sum has the direction of the mean.
        let mean = cosine(&expected_sum, &found_sum);
        self.mean_cosine = self.mean_cosine.min(mean);
    }
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

fn add(sum: &mut [f64], vector: &[f64]) {
    for (sum, value) in sum.iter_mut().zip(vector) {
        *sum += value;
    }
}

/// Returns the cosine of two vectors, or -1 if it is undefined.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    if a == b {
        return 1.0;
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    if cosine.is_nan() { -1.0 } else { cosine }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_cosines_of_residues_and_of_means_are_separate() {
        let mut parity = Parity::default();
        // Two residues whose errors cancel in the mean.
        parity.compare(&[1.0, 0.0, 1.0, 0.0], &[1.0, 0.1, 1.0, -0.1], 2);
        assert!((parity.residue_cosine - 1.0 / 1.01f64.sqrt()).abs() < 1e-9);
        assert!((parity.mean_cosine - 1.0).abs() < 1e-15);
        assert!(parity.suffices());
        parity.compare(&[1.0, 0.0], &[1.0, 0.2], 2);
        assert!(!parity.suffices(), "{parity}");
    }

    #[test]
    fn nan_is_a_failure_of_int8_and_no_measure_in_f32() {
        let mut parity = Parity::default();
        parity.compare(&[f32::NAN, 0.0], &[1.0, 0.1], 2);
        assert_eq!(parity, Parity::default());
        assert!(!parity.suffices(), "nothing was compared");
        parity.compare(&[0.0, 0.0], &[0.0, 0.0], 2);
        assert!(parity.suffices(), "vectors of zeros are equal");
        parity.compare(&[1.0, 0.0], &[f32::NAN, 0.1], 2);
        assert!((parity.residue_cosine + 1.0).abs() < 1e-15);
        assert!(!parity.suffices());
    }

    #[test]
    fn a_cosine_below_its_floor_does_not_read_like_the_floor() {
        let parity = Parity {
            sequences: 1,
            mean_cosine: 0.998_999_99,
            ..Parity::default()
        };
        assert!(!parity.suffices());
        let shown = parity.to_string();
        assert!(shown.contains("is 0.998999 for a mean"), "{shown}");
    }
}
