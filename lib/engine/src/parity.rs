//! Measured agreement of vectors and logits in 8 bits with those in f32.

use std::fmt;

use plmkit_kit::plural;
use serde::Serialize;

use crate::scores::{amino_acid_logits, log_softmax};

/// The lowest accepted cosine of a sequence's mean vector.
const MEAN_FLOOR: f64 = 0.999;
/// The lowest accepted cosine of a residue vector. One residue in thousands attends equally to two others, and rounding decides
/// between them.
const RESIDUE_FLOOR: f64 = 0.98;

/// The highest accepted mean difference of log-probabilities.
const MEAN_DIFFERENCE_LIMIT: f64 = 0.1;
/// The highest accepted share of positions whose most probable amino acid is another.
const CHANGED_LIMIT: f64 = 0.05;

/// The difference to a log-probability that is undefined: JSON has no infinity.
const UNDEFINED: f64 = 1e6;
/// A cosine that is undefined.
const UNDEFINED_COSINE: f64 = -1.0;

/// How close vectors in 8 bits of the last layer are to f32 vectors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Parity {
    /// Compared sequences.
    pub(crate) sequences: usize,
    /// Tokens of these sequences.
    pub(crate) tokens: usize,
    /// The lowest cosine of a mean vector.
    pub(crate) mean_cosine: f64,
    /// The lowest cosine that is accepted for a mean vector.
    pub(crate) mean_cosine_floor: f64,
    /// The lowest cosine of a residue vector.
    pub(crate) residue_cosine: f64,
    /// The lowest cosine that is accepted for a residue vector.
    pub(crate) residue_cosine_floor: f64,
    /// How close logits are, if the run computes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logits: Option<LogitsParity>,
}

/// How close log-probabilities of the twenty amino acids in 8 bits are to those in f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct LogitsParity {
    /// Compared positions.
    positions: usize,
    /// The mean difference of log-probabilities.
    mean_difference: f64,
    /// The highest mean difference that is accepted.
    mean_difference_limit: f64,
    largest_difference: f64,
    /// The share of positions whose most probable amino acid is another.
    changed: f64,
    /// The highest share that is accepted.
    changed_limit: f64,
}

impl Default for LogitsParity {
    fn default() -> Self {
        Self {
            positions: 0,
            mean_difference: 0.0,
            mean_difference_limit: MEAN_DIFFERENCE_LIMIT,
            largest_difference: 0.0,
            changed: 0.0,
            changed_limit: CHANGED_LIMIT,
        }
    }
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
            logits: None,
        }
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded down, so that a cosine below its floor does not read like the floor.
        let floored = |cosine: f64| (cosine * 1e6).floor() / 1e6;
        if self.sequences == 0 {
            return f.write_str(
                "no sampled sequence has finite vectors in f32: probably weights are NaN or infinite, or values too large",
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
        )?;
        if self.residue_cosine <= UNDEFINED_COSINE {
            f.write_str("; -1 means that values are zero or not finite")?;
        }
        match &self.logits {
            Some(logits) => write!(f, "; {logits}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LogitsParity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded up, as above.
        let raised = |value: f64| (value * 1e4).ceil() / 1e4;
        write!(
            f,
            "log-probabilities of amino acids differ by {:.4} on average (expected at most {}) and by {:.4} at most, and {:.2} % of \
             positions have another most probable one (expected at most {} %)",
            raised(self.mean_difference),
            self.mean_difference_limit,
            raised(self.largest_difference),
            raised(self.changed) * 100.0,
            self.changed_limit * 100.0,
        )
    }
}

impl Parity {
    /// Whether something was compared, every cosine reaches its floor, and logits keep their limits.
    pub(crate) fn suffices(&self) -> bool {
        self.sequences > 0
            && self.mean_cosine >= self.mean_cosine_floor
            && self.residue_cosine >= self.residue_cosine_floor
            && self.logits.is_none_or(|logits| logits.suffices())
    }

    /// Compares the residue vectors of a sequence, `(residues, dim)`. Returns whether f32 can compute them; otherwise they are no
    /// measure.
    pub(crate) fn compare(&mut self, expected: &[f32], found: &[f32], dim: usize) -> bool {
        if !expected.iter().all(|value| value.is_finite()) {
            return false;
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
        true
    }
}

impl LogitsParity {
    fn suffices(&self) -> bool {
        self.positions > 0
            && self.mean_difference <= self.mean_difference_limit
            && self.changed <= self.changed_limit
    }

    /// Compares the logits of a sequence, `(residues, width)`.
    pub(crate) fn compare(&mut self, expected: &[f32], found: &[f32], width: usize) {
        let before = self.positions as f64;
        let (mut sum, mut changed) = (self.mean_difference * before, self.changed * before);
        let rows = expected.chunks(width).zip(found.chunks(width));
        for (expected, found) in rows {
            let log_probs = |logits| log_softmax(amino_acid_logits(logits));
            let [expected, found] = [expected, found].map(log_probs);
            // A position that f32 cannot compute is no measure.
            if !expected.iter().all(|value| value.is_finite()) {
                continue;
            }
            self.positions += 1;
            let pairs = expected.iter().zip(&found);
            // `min` drops NaN.
            let differences =
                pairs.map(|(expected, found)| (expected - found).abs().min(UNDEFINED));
            let differences: Vec<f64> = differences.collect();
            sum += differences.iter().sum::<f64>() / differences.len() as f64;
            let largest = differences.into_iter().fold(0.0, f64::max);
            self.largest_difference = self.largest_difference.max(largest);
            changed += f64::from(u8::from(best(&expected) != best(&found)));
        }
        if self.positions > 0 {
            self.mean_difference = sum / self.positions as f64;
            self.changed = changed / self.positions as f64;
        }
    }
}

/// Returns the place of the highest value, the first of several.
fn best(values: &[f64]) -> Option<usize> {
    let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter().position(|&value| value >= best)
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

fn add(sum: &mut [f64], vector: &[f64]) {
    for (sum, value) in sum.iter_mut().zip(vector) {
        *sum += value;
    }
}

/// Returns the cosine of two vectors, or [`UNDEFINED_COSINE`].
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    if a == b {
        return 1.0;
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    if cosine.is_nan() {
        UNDEFINED_COSINE
    } else {
        cosine
    }
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
    fn nan_is_a_failure_of_8_bits_and_no_measure_in_f32() {
        let mut parity = Parity::default();
        parity.compare(&[f32::NAN, 0.0], &[1.0, 0.1], 2);
        assert_eq!(parity, Parity::default());
        assert!(!parity.suffices(), "nothing was compared");
        parity.compare(&[0.0, 0.0], &[0.0, 0.0], 2);
        assert!(parity.suffices(), "vectors of zeros are equal");
        parity.compare(&[1.0, 0.0], &[f32::NAN, 0.1], 2);
        assert!((parity.residue_cosine + 1.0).abs() < 1e-15);
        assert!(!parity.suffices());
        assert!(parity.to_string().contains("not finite"), "{parity}");
    }

    const VOCABULARY: usize = 33;

    /// The logits of a position whose amino acids have these first two, and whose other tokens have `other`.
    fn logits(first: f32, second: f32, other: f32) -> Vec<f32> {
        let mut logits = vec![other; VOCABULARY];
        logits[4..24].fill(first.min(second) - 100.0);
        logits[4..6].copy_from_slice(&[first, second]);
        logits
    }

    #[test]
    fn log_probabilities_are_those_of_the_amino_acids() {
        let mut parity = LogitsParity::default();
        assert!(!parity.suffices(), "nothing was compared");
        // Other tokens and a constant do not matter.
        parity.compare(&logits(1.0, 0.0, 3.0), &logits(6.0, 5.0, 50.0), VOCABULARY);
        assert!(
            parity.mean_difference < 1e-6 && parity.suffices(),
            "{parity}"
        );
        // The second becomes the best one, by one unit of each of two in twenty.
        let (before, after) = (logits(0.5, -0.5, 0.0), logits(-0.5, 0.5, 0.0));
        parity.compare(&before, &after, VOCABULARY);
        assert!((parity.largest_difference - 1.0).abs() < 1e-6, "{parity}");
        assert!((parity.changed - 0.5).abs() < 1e-15 && !parity.suffices());
        assert_eq!(parity.positions, 2);
    }

    #[test]
    fn logits_that_are_not_finite_are_a_failure_of_8_bits_and_no_measure_in_f32() {
        let (finite, not) = (logits(1.0, 0.0, 0.0), logits(f32::NAN, 0.0, 0.0));
        let mut parity = LogitsParity::default();
        parity.compare(&not, &finite, VOCABULARY);
        assert_eq!(parity, LogitsParity::default());
        parity.compare(&finite, &not, VOCABULARY);
        assert!(!parity.suffices(), "{parity}");
        let recorded = serde_json::to_string(&parity).unwrap();
        assert!(!recorded.contains("null"), "{recorded}");
        let mut vectors = Parity::default();
        vectors.compare(&[1.0, 0.0], &[1.0, 0.0], 2);
        assert!(vectors.suffices());
        vectors.logits = Some(parity);
        assert!(!vectors.suffices(), "{vectors}");
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
