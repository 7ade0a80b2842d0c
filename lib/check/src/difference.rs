//! How far a vector is from the same computed again.

use plmkit_contract::{AMINO_ACIDS, Column, Pooling};

use crate::tolerance::{Tolerance, WORST_RESIDUE};
use crate::vector::dot;

/// The least root mean square contact: below, differences are of no account.
const LEAST_CONTACT: f64 = 0.01;

/// How far a vector is from the same computed again, as a share of its size. `mean` is that of the layer, computed again;
/// the logits of a residue are `logits` values.
pub(crate) fn difference(
    column: Column,
    found: &[f32],
    expected: &[f32],
    mean: Option<&[f32]>,
    logits: usize,
    tolerance: Tolerance,
) -> f64 {
    let distance = |x: &[f32], y: &[f32]| distance(x, y, tolerance.rounding);
    match column {
        Column::Pooled { pool, .. } => {
            let mean = mean.filter(|_| pool == Pooling::Std).map_or(0.0, norm);
            let size = norm(expected).max(tolerance.std_floor * mean);
            share(distance(found, expected), size)
        }
        Column::Residues(_) => {
            let width = mean.map_or(expected.len(), <[f32]>::len).max(1);
            let residues = (expected.len() / width) as f64;
            let size = norm(expected);
            let pairs = found.chunks(width).zip(expected.chunks(width));
            let worst = pairs.map(|(x, y)| distance(x, y)).fold(0.0, nan_max);
            let worst = share(worst * residues.sqrt(), size) / WORST_RESIDUE;
            nan_max(share(distance(found, expected), size), worst)
        }
        Column::LogProbs => {
            // A residue that was not masked again has none.
            let pairs = found.chunks(LOG_PROBS).zip(expected.chunks(LOG_PROBS));
            let pairs = pairs.filter(|(_, expected)| !expected[0].is_nan());
            let (found, expected): (Vec<&[f32]>, Vec<&[f32]>) = pairs.unzip();
            by_token(&found.concat(), &expected.concat(), LOG_PROBS, distance)
        }
        Column::Logits => by_token(found, expected, logits, distance),
        Column::LogLikelihood => share(distance(found, expected), norm(expected)),
        Column::Contacts => {
            let size = norm(expected).max(LEAST_CONTACT * (expected.len() as f64).sqrt());
            share(distance(found, expected), size)
        }
    }
}

/// How many log-probabilities a residue has.
const LOG_PROBS: usize = AMINO_ACIDS.len();

/// The largest difference of the values of one token, as a share of the deviation of all values: a measure over all tokens would hide a
/// fault in a rare one.
fn by_token(
    found: &[f32],
    expected: &[f32],
    width: usize,
    distance: impl Fn(&[f32], &[f32]) -> f64,
) -> f64 {
    let count = expected.len() as f64;
    let middle = expected.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let squares = expected
        .iter()
        .map(|&value| (f64::from(value) - middle).powi(2));
    let size = (squares.sum::<f64>() / width as f64).sqrt();
    let token = |values: &[f32], token: usize| -> Vec<f32> {
        values.iter().skip(token).step_by(width).copied().collect()
    };
    let differences = (0..width).map(|at| distance(&token(found, at), &token(expected, at)));
    share(differences.fold(0.0, nan_max), size)
}

/// The larger of two; what is not a number is larger than any.
fn nan_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The difference over the size; 0 if both are 0.
fn share(difference: f64, size: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else {
        difference / size
    }
}

pub(crate) fn norm(vector: &[f32]) -> f64 {
    dot(vector, vector).sqrt()
}

/// The distance beyond what rounding by this share of each value may change. Below the smallest normal number of f16, rounding is
/// absolute.
pub(crate) fn distance(found: &[f32], expected: &[f32], rounding: f64) -> f64 {
    const LEAST_NORMAL_F16: f64 = 6.103_515_625e-5;
    let pairs = found.iter().zip(expected);
    let squares = pairs.map(|(&x, &y)| {
        let (x, y) = (f64::from(x), f64::from(y));
        let difference = (x - y).abs();
        // What is not a number stays so.
        let beyond = difference - rounding * y.abs().max(LEAST_NORMAL_F16);
        if beyond < 0.0 { 0.0 } else { beyond * beyond }
    });
    squares.sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use plmkit_contract::Provenance;

    use super::*;

    #[test]
    fn only_residues_that_were_masked_again_are_compared() {
        let tolerance = Tolerance::of(&Provenance::new("gpu-embed", Vec::new()));
        let compare = |found: &[f32], expected: &[f32]| {
            difference(Column::LogProbs, found, expected, None, 33, tolerance)
        };
        let residue: Vec<f32> = (0..20_u8).map(|token| -f32::from(token)).collect();
        let missing = [f32::NAN; LOG_PROBS];
        let expected = [&residue[..], &missing].concat();
        let found = [&residue[..], &residue].concat();
        assert!(compare(&found, &expected).abs() < f64::MIN_POSITIVE);
        assert!(compare(&found, &[missing, missing].concat()).abs() < f64::MIN_POSITIVE);
        let mut other = found.clone();
        other[25] = 7.0;
        assert!(compare(&other, &expected).abs() < f64::MIN_POSITIVE);
        other[3] += 0.1;
        assert!(compare(&other, &expected) > 1e-3);
        let lost = [&missing[..], &residue].concat();
        assert!(compare(&lost, &expected).is_nan());
    }
}
