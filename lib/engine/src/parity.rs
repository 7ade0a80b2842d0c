//! How near vectors in int8 come to those in f32.

use std::fmt;

use plmkit_contract::plural;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The lowest cosine that the mean vector of a sequence may have.
const MEAN: f64 = 0.999;
/// The lowest cosine that the vector of a residue may have. One in thousands attends to two others alike, and rounding
/// decides between them.
const RESIDUE: f64 = 0.98;

/// How near vectors of the last layer in int8 are to those in f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parity {
    /// Sequences that were compared.
    pub sequences: usize,
    /// Their tokens.
    pub tokens: usize,
    /// The lowest cosine of a mean vector.
    pub mean_cosine: f64,
    /// The least that it had to be.
    pub mean_cosine_floor: f64,
    /// The lowest cosine of the vector of a residue.
    pub residue_cosine: f64,
    /// The least that it had to be.
    pub residue_cosine_floor: f64,
}

impl Default for Parity {
    fn default() -> Self {
        Self {
            sequences: 0,
            tokens: 0,
            mean_cosine: 1.0,
            mean_cosine_floor: MEAN,
            residue_cosine: 1.0,
            residue_cosine_floor: RESIDUE,
        }
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sequences, tokens, ..
        } = self;
        // Rounded down: a figure below its floor is not to read like the floor.
        let [mean, residue] =
            [self.mean_cosine, self.residue_cosine].map(|cosine| (cosine * 1e6).floor() / 1e6);
        let (mean_floor, residue_floor) = (self.mean_cosine_floor, self.residue_cosine_floor);
        write!(
            f,
            "over {} of the run, {}, the lowest cosine to f32 is {mean:.6} for a mean \
             vector (expected at least {mean_floor}) and {residue:.6} for a residue vector (expected at least \
             {residue_floor})",
            plural(*sequences, "sequence"),
            plural(*tokens, "token")
        )
    }
}

impl Parity {
    /// For the metadata of a file.
    pub(crate) fn to_json(self) -> Value {
        serde_json::to_value(self).expect("names and finite numbers")
    }

    /// Whether every cosine reaches its floor.
    pub(crate) fn suffices(&self) -> bool {
        self.mean_cosine >= self.mean_cosine_floor
            && self.residue_cosine >= self.residue_cosine_floor
    }

    /// Compares the residue vectors of a sequence, `(residues, dim)`.
    pub(crate) fn compare(&mut self, expected: &[f32], found: &[f32], dim: usize) {
        // What f32 cannot compute is no measure for others.
        if !expected.iter().all(|value| value.is_finite()) {
            return;
        }
        self.sequences += 1;
        self.tokens += expected.len() / dim + 2;
        let cosines = expected.chunks(dim).zip(found.chunks(dim));
        let cosines = cosines.map(|(expected, found)| cosine(&widen(expected), &widen(found)));
        self.residue_cosine = cosines.fold(self.residue_cosine, f64::min);
        let mean = cosine(&sum(expected, dim), &sum(found, dim));
        self.mean_cosine = self.mean_cosine.min(mean);
    }
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// The sum of vectors of `dim` values, which points where their mean does.
fn sum(vectors: &[f32], dim: usize) -> Vec<f64> {
    let mut sum = vec![0.0; dim];
    for vector in vectors.chunks(dim) {
        for (sum, &value) in sum.iter_mut().zip(vector) {
            *sum += f64::from(value);
        }
    }
    sum
}

/// -1 where there is none.
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
    fn the_worst_residue_and_the_mean_are_taken_apart() {
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
    fn vectors_that_are_no_numbers_have_no_cosine() {
        let mut parity = Parity::default();
        parity.compare(&[f32::NAN, 0.0], &[1.0, 0.1], 2);
        assert_eq!(parity, Parity::default(), "nothing to compare with");
        parity.compare(&[1.0, 0.0], &[f32::NAN, 0.1], 2);
        assert!((parity.residue_cosine + 1.0).abs() < 1e-15);
        assert!(!parity.suffices());
    }

    #[test]
    fn vectors_of_zeros_are_equal() {
        let mut parity = Parity::default();
        parity.compare(&[0.0, 0.0], &[0.0, 0.0], 2);
        assert!(parity.suffices());
    }

    #[test]
    fn a_cosine_below_its_floor_does_not_read_like_the_floor() {
        let parity = Parity {
            mean_cosine: 0.998_999_99,
            ..Parity::default()
        };
        assert!(!parity.suffices());
        assert!(
            parity.to_string().contains("is 0.998999 for a mean"),
            "{parity}"
        );
    }
}
