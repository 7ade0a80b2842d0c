//! How near int8 comes to f32 on some of the run's own sequences, found out before anything is computed.

use std::fmt;
use std::ops::RangeInclusive;

use plmkit_contract::{Column, Stop, plural};
use plmkit_esm2::{Buffer, Dtype, Esm2, EsmError, Varlen};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::Backend;
use crate::facts::Facts;
use crate::plan::Plan;
use crate::{Config, EngineError};

/// The lowest cosine that the mean vector of a sequence may have.
const MEAN: f64 = 0.999;
/// The lowest cosine that the vector of a residue may have. One in thousands attends to two others alike, and rounding
/// decides between them.
const RESIDUE: f64 = 0.98;

/// The share of a run's tokens that a sample has: in both types they cost four to five times as much as in int8 alone.
const SHARE: u64 = 100;
/// The tokens that it has at least, and at most.
const TOKENS: RangeInclusive<u64> = 256..=4096;
/// Tokens of a sequence of the sample, at least and at most; a longer one is cut. Four are to fit.
const LONGEST: RangeInclusive<usize> = 128..=512;
/// Packs that a sample is from.
const PACKS: u64 = 16;
/// Sequences of a pack that may be in it.
const PLACES: usize = 4;

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

    fn suffices(&self) -> bool {
        self.mean_cosine >= self.mean_cosine_floor
            && self.residue_cosine >= self.residue_cosine_floor
    }

    /// Takes in the residue vectors of a sequence, `(residues, dim)`.
    fn compare(&mut self, expected: &[f32], found: &[f32], dim: usize) {
        // What f32 cannot compute is no measure for others.
        if !expected.iter().all(|value| value.is_finite()) {
            return;
        }
        self.sequences += 1;
        self.tokens += expected.len() / dim + 2;
        let cosines = expected.chunks(dim).zip(found.chunks(dim));
        let cosines = cosines.map(|(expected, found)| cosine(&wide(expected), &wide(found)));
        self.residue_cosine = cosines.fold(self.residue_cosine, f64::min);
        let mean = cosine(&sum(expected, dim), &sum(found, dim));
        self.mean_cosine = self.mean_cosine.min(mean);
    }
}

/// Has `backend` compared with the checkpoint in f32, if it computes in int8 and there is anything to embed.
pub(crate) fn gate(
    config: &Config,
    plan: &Plan,
    facts: &Facts,
    backend: &mut Backend<'_>,
) -> Result<Option<Parity>, EngineError> {
    if facts.dtype != Dtype::Int8 {
        return Ok(None);
    }
    let sample = Sample::of(plan)?;
    if sample.is_empty() {
        return Ok(None);
    }
    tracing::debug!(
        "int8: comparing with f32 on a sample of {} tokens",
        sample.tokens.len()
    );
    let parity = backend.measure(sample)?;
    if parity.suffices() {
        tracing::info!("int8: {parity}");
        Ok(Some(parity))
    } else {
        let model = config.model.clone();
        Err(EngineError::Parity { model, parity })
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

/// Some sequences from all over a run: the same for the same batches.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Token ids, sequence after sequence.
    tokens: Vec<u8>,
    /// Where each begins and the last one ends, as in a batch.
    cu_seqlens: Vec<i32>,
}

impl Sample {
    fn of(plan: &Plan) -> Result<Self, EngineError> {
        let tokens_wanted = tokens_for(plan.total.tokens);
        let all = plan.total.batches;
        let packs = PACKS.min(all);
        let wanted: Vec<u64> = (0..packs).map(|i| i * all / packs).collect();
        let mut offered = Vec::new();
        for job in plan.jobs_where(|index| wanted.contains(&index)) {
            let job = job?;
            let (tokens, offsets) = (job.pack.tokens(), job.pack.cu_seqlens());
            Varlen::new(tokens, offsets)
                .map_err(|error| EngineError::batch(&job.path, job.batch_in_file, error))?;
            let sequences = job.pack.sequences();
            let places = PLACES.min(sequences);
            let rows = (0..places).map(|place| place * sequences / places);
            let cut = |row: usize| {
                let sequence = &tokens[offsets[row] as usize..offsets[row + 1] as usize];
                cut(sequence, longest(tokens_wanted))
            };
            offered.push(rows.map(cut).collect());
        }
        Ok(Self::among(&offered, tokens_wanted))
    }

    /// From each pack another place first, since packs hold their longest sequences at one end.
    fn among(offered: &[Vec<Vec<u8>>], tokens: usize) -> Self {
        let mut sample = Self {
            tokens: Vec::new(),
            cu_seqlens: vec![0],
        };
        for round in 0..PLACES {
            for (pack, sequences) in offered.iter().enumerate() {
                let Some(sequence) = sequences.get((pack + round) % PLACES) else {
                    continue;
                };
                let end = sample.tokens.len() + sequence.len();
                if end <= tokens {
                    sample.tokens.extend(sequence);
                    sample.cu_seqlens.push(end.try_into().expect("few"));
                }
            }
        }
        sample
    }

    /// How near `model`, which is in int8, comes on it to the same checkpoint in f32.
    pub(crate) fn measure(&self, model: &Esm2, stop: &Stop) -> Result<Parity, EngineError> {
        let found = self.residues(model, stop)?;
        let exact = model.in_f32(stop)?;
        let exact = exact.expect("plmkit's own kernels compute int8");
        let expected = self.residues(&exact, stop)?;
        let dim = model.config().hidden;
        let mut parity = Parity::default();
        let (mut expected, mut found) = (&expected[..], &found[..]);
        for residues in self.lengths() {
            let (here, there);
            (here, expected) = expected.split_at(residues * dim);
            (there, found) = found.split_at(residues * dim);
            parity.compare(here, there, dim);
        }
        Ok(parity)
    }

    fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The residues of each sequence.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.cu_seqlens
            .windows(2)
            .map(|ends| (ends[1] - ends[0] - 2) as usize)
    }

    /// The last layer of each residue: `(residues of all sequences, dim)`.
    fn residues(&self, model: &Esm2, stop: &Stop) -> Result<Buffer<f32>, EsmError> {
        let batch = Varlen::new(&self.tokens, &self.cu_seqlens).expect("each sequence was checked");
        let last = Column::Residues(model.config().layers as u32);
        let mut columns = model.embed(batch, &[last], model.dtype(), stop)?;
        Ok(columns.swap_remove(0))
    }
}

/// The tokens of the sample of a run of so many.
fn tokens_for(run: u64) -> usize {
    (run / SHARE).clamp(*TOKENS.start(), *TOKENS.end()) as usize
}

/// The tokens of a sequence of a sample of so many.
fn longest(tokens: usize) -> usize {
    (tokens / 4).clamp(*LONGEST.start(), *LONGEST.end())
}

/// The first tokens of a sequence, with the `<eos>` at its end.
fn cut(sequence: &[u8], longest: usize) -> Vec<u8> {
    let mut tokens = sequence.to_vec();
    if let (true, Some(&eos)) = (tokens.len() > longest, tokens.last()) {
        tokens.truncate(longest - 1);
        tokens.push(eos);
    }
    tokens
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

    #[test]
    fn a_sample_has_something_of_every_pack_and_is_not_too_long() {
        let sequence = |length: usize| cut(&[vec![0], vec![5; length], vec![2]].concat(), 512);
        let lengths = |offered: &[Vec<Vec<u8>>], tokens: usize| {
            Sample::among(offered, tokens).lengths().collect::<Vec<_>>()
        };
        assert!(Sample::among(&[], 4096).is_empty());
        assert_eq!(lengths(&[vec![sequence(10)]], 256), [10]);
        assert_eq!(lengths(&[vec![sequence(30_000)]], 4096), [510]);
        let pack = |first: usize| (first..first + PLACES).map(sequence).collect();
        assert_eq!(
            lengths(&[pack(10), pack(20)], 4096),
            [10, 21, 11, 22, 12, 23, 13, 20]
        );
        assert_eq!(lengths(&[pack(10), pack(20)], 40), [10, 21]);
        let long = vec![vec![sequence(1022); PLACES]; 16];
        assert_eq!(lengths(&long, 4096), [510; 8]);
        let cut = sequence(1022);
        assert_eq!((cut.len(), cut[0], cut[511]), (512, 0, 2));
    }

    #[test]
    fn a_sample_is_a_hundredth_of_a_run_or_a_few_sequences() {
        for (run, tokens, longest_of_them) in [
            (1, 256, 128),
            (25_600, 256, 128),
            (100_000, 1000, 250),
            (10_000_000, 4096, 512),
        ] {
            assert_eq!(tokens_for(run), tokens);
            assert_eq!(longest(tokens), longest_of_them);
        }
    }
}
