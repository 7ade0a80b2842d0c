//! A sample of a run's own sequences, on which int8 is compared with f32.

use std::ops::RangeInclusive;

use plmkit_contract::{Column, Stop};
use plmkit_esm2::{Buffer, Esm2, EsmError, Varlen};
use serde::{Deserialize, Serialize};

use crate::EngineError;
use crate::inputs::RunInputs;
use crate::parity::Parity;

/// The share of a run's tokens that a sample has: in both types they cost four to five times as much as in int8 alone.
const SHARE: u64 = 100;
/// The tokens that it has at least, and at most.
const TOKENS: RangeInclusive<u64> = 256..=4096;
/// Tokens of a sequence of the sample, at least and at most; a longer one is cut. Four are to fit.
const LONGEST: RangeInclusive<usize> = 128..=512;
/// Batches that a sample is from.
const BATCHES: u64 = 16;
/// Sequences of a batch that may be in it.
const PLACES: usize = 4;

/// Some sequences from all over a run: the same for the same batches.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Token ids, sequence after sequence.
    tokens: Vec<u8>,
    /// Where each begins and the last one ends, as in a batch.
    cu_seqlens: Vec<i32>,
}

impl Sample {
    /// Draws the sample of a run.
    pub(crate) fn draw(inputs: &RunInputs) -> Result<Self, EngineError> {
        let tokens_wanted = tokens_for(inputs.total.tokens);
        let all = inputs.total.batches;
        let batches = BATCHES.min(all);
        let wanted: Vec<u64> = (0..batches).map(|i| i * all / batches).collect();
        let mut offered = Vec::new();
        for batch in inputs.batches_where(|index| wanted.contains(&index)) {
            let batch = batch?;
            let (tokens, offsets) = (batch.packed.tokens(), batch.packed.cu_seqlens());
            Varlen::new(tokens, offsets)
                .map_err(|error| EngineError::batch(&batch.path, batch.index_in_file, error))?;
            let sequences = batch.packed.sequences();
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

    /// From each batch another place first, since batches hold their longest sequences at one end.
    fn among(offered: &[Vec<Vec<u8>>], tokens: usize) -> Self {
        let mut sample = Self {
            tokens: Vec::new(),
            cu_seqlens: vec![0],
        };
        for round in 0..PLACES {
            for (batch, sequences) in offered.iter().enumerate() {
                let Some(sequence) = sequences.get((batch + round) % PLACES) else {
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
    pub(crate) fn measure(&self, model: &Esm2, stop: &Stop) -> Result<Parity, EsmError> {
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

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Its tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens.len()
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
    fn a_sample_has_something_of_every_batch_and_is_not_too_long() {
        let sequence = |length: usize| cut(&[vec![0], vec![5; length], vec![2]].concat(), 512);
        let lengths = |offered: &[Vec<Vec<u8>>], tokens: usize| {
            Sample::among(offered, tokens).lengths().collect::<Vec<_>>()
        };
        assert!(Sample::among(&[], 4096).is_empty());
        assert_eq!(lengths(&[vec![sequence(10)]], 256), [10]);
        assert_eq!(lengths(&[vec![sequence(30_000)]], 4096), [510]);
        let batch = |first: usize| (first..first + PLACES).map(sequence).collect();
        assert_eq!(
            lengths(&[batch(10), batch(20)], 4096),
            [10, 21, 11, 22, 12, 23, 13, 20]
        );
        assert_eq!(lengths(&[batch(10), batch(20)], 40), [10, 21]);
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
