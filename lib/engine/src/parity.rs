//! How near int8 comes to f32 on some of the run's own sequences, found out before the run begins.

use std::collections::BTreeSet;
use std::fmt;

use plmkit_contract::{Column, Stop};
use plmkit_esm2::{Dtype, Esm2, Setup, Varlen};
use serde::Serialize;
use serde_json::Value;

use crate::plan::Plan;
use crate::{Config, EngineError};

/// The lowest cosine that the mean vector of a sequence may have.
const MEAN: f64 = 0.999;
/// The lowest cosine that the vector of a residue may have. One in thousands attends to two others alike, and rounding
/// decides between them.
const RESIDUE: f64 = 0.98;

/// Tokens of a sample: more, and a short run would spend its time here.
const TOKENS: usize = 4096;
/// Tokens of a sequence of the sample: more, and few sequences would be all of it.
const LONGEST: usize = TOKENS / 8;
/// Packs that a sample is from.
const PACKS: u64 = 16;
/// Sequences of a pack that may be in it.
const PLACES: usize = 4;

/// How near vectors in int8 are to those in f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parity {
    /// Sequences of the sample.
    pub sequences: usize,
    /// Their tokens.
    pub tokens: usize,
    /// The lowest cosine of a mean vector, of all layers asked for.
    pub mean_cosine: f64,
    /// The least that it had to be.
    pub mean_cosine_floor: f64,
    /// The lowest cosine of the vector of a residue.
    pub residue_cosine: f64,
    /// The least that it had to be.
    pub residue_cosine_floor: f64,
}

impl Parity {
    /// For the metadata of a file.
    pub(crate) fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn suffices(&self) -> bool {
        self.mean_cosine >= self.mean_cosine_floor
            && self.residue_cosine >= self.residue_cosine_floor
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lowest cosine to f32 over {} sequences of the run, {} tokens, is {:.6} for a mean vector (expected at least \
             {}) and {:.6} for a residue vector (expected at least {})",
            self.sequences,
            self.tokens,
            self.mean_cosine,
            self.mean_cosine_floor,
            self.residue_cosine,
            self.residue_cosine_floor,
        )
    }
}

/// Compares `model` with its checkpoint in f32, if it is in int8.
pub(crate) fn measure(
    config: &Config,
    plan: &Plan,
    model: &Esm2,
    columns: &[Column],
    stop: &Stop,
) -> Result<Option<Parity>, EngineError> {
    if model.dtype() != Dtype::Int8 {
        return Ok(None);
    }
    let setup = Setup {
        device: config.device,
        dtype: Dtype::F32,
        kernels: config.kernels,
    };
    let exact = Esm2::load(&config.model, setup, stop)?;
    let last = model.config().layers as u32;
    let layers: BTreeSet<u32> = columns
        .iter()
        .map(|column| column.layer().unwrap_or(last))
        .collect();
    let layers: Vec<Column> = layers.into_iter().map(Column::Residues).collect();
    let dim = model.config().hidden;
    let mut parity = Parity {
        sequences: 0,
        tokens: 0,
        mean_cosine: 1.0,
        mean_cosine_floor: MEAN,
        residue_cosine: 1.0,
        residue_cosine_floor: RESIDUE,
    };
    for tokens in sample(plan)? {
        let ends = [0, tokens.len() as i32];
        let embed = |model: &Esm2| {
            let batch = Varlen::new(&tokens, &ends).expect("the batches were verified");
            model.embed(batch, &layers, model.dtype(), stop)
        };
        let (expected, found) = (embed(&exact)?, embed(model)?);
        for (expected, found) in expected.iter().zip(&found) {
            parity.compare(expected, found, dim);
        }
        parity.sequences += 1;
        parity.tokens += tokens.len();
    }
    if parity.suffices() {
        tracing::info!("int8: {parity}");
        Ok(Some(parity))
    } else {
        let model = config.model.clone();
        Err(EngineError::Parity { model, parity })
    }
}

impl Parity {
    /// Takes in the residue vectors of a sequence, `(residues, dim)`.
    fn compare(&mut self, expected: &[f32], found: &[f32], dim: usize) {
        // What f32 cannot compute is no measure for others.
        if !expected.iter().all(|value| value.is_finite()) {
            return;
        }
        let cosines = expected.chunks(dim).zip(found.chunks(dim));
        let cosines = cosines.map(|(expected, found)| cosine(&wide(expected), &wide(found)));
        self.residue_cosine = cosines.fold(self.residue_cosine, f64::min);
        let mean = cosine(&sum(expected, dim), &sum(found, dim));
        self.mean_cosine = self.mean_cosine.min(mean);
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
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

/// The token ids of some sequences from all over the run: the same for the same batches.
fn sample(plan: &Plan) -> Result<Vec<Vec<u8>>, EngineError> {
    let all = plan.total.batches;
    let packs = PACKS.min(all);
    let mut offered: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut shortest: Option<Vec<u8>> = None;
    let wanted: Vec<u64> = (0..packs).map(|i| i * all / packs).collect();
    for job in plan.jobs_where(|index| wanted.contains(&index)) {
        let pack = job?.pack;
        let (tokens, offsets) = (pack.tokens(), pack.cu_seqlens());
        let places = PLACES.min(pack.sequences());
        let rows = (0..places).map(|place| place * pack.sequences() / places);
        let sequence =
            |row: usize| tokens[offsets[row] as usize..offsets[row + 1] as usize].to_vec();
        let sequences: Vec<Vec<u8>> = rows.map(sequence).collect();
        shortest = sequences
            .iter()
            .chain(&shortest)
            .min_by_key(|sequence| sequence.len())
            .cloned();
        offered.push(sequences);
    }
    // From each pack another place first: packs hold their longest sequences at one end.
    let mut sample: Vec<Vec<u8>> = Vec::new();
    let mut taken = 0;
    for round in 0..PLACES {
        for (pack, sequences) in offered.iter_mut().enumerate() {
            let Some(sequence) = sequences.get_mut((pack + round) % PLACES) else {
                continue;
            };
            if sequence.len() <= LONGEST.min(TOKENS - taken) {
                taken += sequence.len();
                sample.push(std::mem::take(sequence));
            }
        }
    }
    if sample.is_empty() {
        sample.extend(shortest);
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmeasured() -> Parity {
        Parity {
            sequences: 0,
            tokens: 0,
            mean_cosine: 1.0,
            mean_cosine_floor: MEAN,
            residue_cosine: 1.0,
            residue_cosine_floor: RESIDUE,
        }
    }

    #[test]
    fn the_worst_residue_and_the_mean_are_taken_apart() {
        let mut parity = unmeasured();
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
        let mut parity = unmeasured();
        parity.compare(&[f32::NAN, 0.0], &[1.0, 0.1], 2);
        assert!(parity.suffices(), "nothing to compare with");
        parity.compare(&[1.0, 0.0], &[f32::NAN, 0.1], 2);
        assert!((parity.residue_cosine + 1.0).abs() < 1e-15);
        assert!(!parity.suffices());
    }

    #[test]
    fn vectors_of_zeros_are_equal() {
        let mut parity = unmeasured();
        parity.compare(&[0.0, 0.0], &[0.0, 0.0], 2);
        assert!(parity.suffices());
    }
}
