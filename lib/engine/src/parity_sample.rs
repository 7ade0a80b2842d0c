//! A sample of the run's own sequences, for comparing a type of 8 bits with f32.

use std::ops::RangeInclusive;

use plmkit_contract::{Column, Widths};
use plmkit_esm2::{Buffer, Dtype, Esm2, EsmError, Varlen};
use plmkit_kit::Stop;

use crate::error::EngineError;
use crate::inputs::RunInputs;
use crate::parity::{LogitsParity, Parity};

/// The sample has one in this many tokens of the run. Computing it in both types costs four to five times as much as in int8 alone, on a GPU more.
const SHARE: u64 = 100;
/// Limits of the tokens of a sample.
const TOKENS: RangeInclusive<u64> = 256..=4096;
/// Limits of the tokens of one sequence, a quarter of the sample. Longer sequences are cut.
const LONGEST: RangeInclusive<usize> = 128..=512;
/// Batches to draw from.
const BATCHES: u64 = 16;
/// Candidates from each batch.
const CANDIDATES: usize = 4;

/// Sequences from all over a run, the same for the same batches.
#[derive(Debug)]
pub(crate) struct ParitySample {
    /// Token ids of each sequence to choose from, in the order of choice.
    candidates: Vec<Vec<u8>>,
    /// The most tokens to compare.
    most_tokens: usize,
    /// Whether logits are compared too.
    logits: bool,
}

impl ParitySample {
    /// Draws the sample of a run, which computes `logits` or not.
    pub(crate) fn draw(inputs: &RunInputs, logits: bool) -> Result<Self, EngineError> {
        let most_tokens = tokens_for(inputs.total.tokens);
        let all = inputs.total.batches;
        let count = BATCHES.min(all);
        let wanted: Vec<u64> = (0..count).map(|i| i * all / count).collect();
        let mut of_batches = Vec::new();
        for batch in inputs.batches_where(|index| wanted.contains(&index)) {
            let batch = batch?;
            let (tokens, offsets) = (batch.packed.tokens(), batch.packed.cu_seqlens());
            let sequences = batch.packed.sequences();
            let count = CANDIDATES.min(sequences);
            let rows = (0..count).map(|candidate| candidate * sequences / count);
            let cut = |row: usize| {
                let sequence = &tokens[offsets[row] as usize..offsets[row + 1] as usize];
                cut(sequence, longest(most_tokens))
            };
            of_batches.push(rows.map(cut).collect());
        }
        Ok(Self {
            candidates: interleave(of_batches),
            most_tokens,
            logits,
        })
    }

    /// Whether the run has no sequence.
    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Compares `model`, which is in 8 bits, with the same checkpoint in f32. A sequence that f32 cannot compute is no measure, and
    /// others take its place.
    pub(crate) fn measure(mut self, model: &Esm2, stop: &Stop) -> Result<Parity, EsmError> {
        let loaded = model.in_f32()?;
        let exact = loaded.as_ref().unwrap_or(model);
        let dtype = model.info().dtype;
        let Widths { dim, logits: width } = model.info().config().widths();
        let mut parity = Parity {
            logits: self.logits.then(LogitsParity::default),
            ..Parity::default()
        };
        loop {
            let sequences = self.choose(self.most_tokens - parity.tokens);
            if sequences.is_empty() {
                return Ok(parity);
            }
            let expected = self.compute(exact, Dtype::F32, &sequences, stop)?;
            let found = self.compute(model, dtype, &sequences, stop)?;
            let mut start = 0;
            for sequence in sequences {
                let end = start + sequence.len() - 2;
                let values = start * dim..end * dim;
                let measured = parity.compare(&expected[0][values.clone()], &found[0][values], dim);
                if let (true, Some(logits)) = (measured, &mut parity.logits) {
                    let values = start * width..end * width;
                    logits.compare(&expected[1][values.clone()], &found[1][values], width);
                }
                start = end;
            }
        }
    }

    /// Computes the last layer of each residue, `(residues of all sequences, dim)`, and its logits if they are compared.
    fn compute(
        &self,
        model: &Esm2,
        dtype: Dtype,
        sequences: &[Vec<u8>],
        stop: &Stop,
    ) -> Result<Vec<Buffer<f32>>, EsmError> {
        let (mut tokens, mut cu_seqlens) = (Vec::new(), vec![0]);
        for sequence in sequences {
            tokens.extend(sequence);
            cu_seqlens.push(tokens.len().try_into().expect("few"));
        }
        let batch = Varlen::new(&tokens, &cu_seqlens).expect("each sequence was checked");
        let last = Column::Residues(model.info().config().layers as u32);
        let columns = [last, Column::Logits];
        let columns = &columns[..=usize::from(self.logits)];
        model.embed(batch, columns, dtype, stop)
    }

    /// Removes up to `tokens` tokens of sequences from the candidates.
    fn choose(&mut self, tokens: usize) -> Vec<Vec<u8>> {
        let mut left = tokens;
        let fits = |sequence: &mut Vec<u8>| {
            let fits = sequence.len() <= left;
            left -= if fits { sequence.len() } else { 0 };
            fits
        };
        self.candidates.extract_if(.., fits).collect()
    }
}

/// Orders the candidates of each batch. Each batch starts with another candidate, because batches hold their longest sequences at
/// one end.
fn interleave(mut of_batches: Vec<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    let mut candidates = Vec::new();
    for round in 0..CANDIDATES {
        for (batch, sequences) in of_batches.iter_mut().enumerate() {
            let sequence = sequences.get_mut((batch + round) % CANDIDATES);
            candidates.extend(sequence.map(std::mem::take));
        }
    }
    candidates
}

/// Returns the tokens of the sample of a run with `run` tokens.
fn tokens_for(run: u64) -> usize {
    (run / SHARE).clamp(*TOKENS.start(), *TOKENS.end()) as usize
}

/// Returns the most tokens of one sequence of a sample with `tokens` tokens.
fn longest(tokens: usize) -> usize {
    (tokens / 4).clamp(*LONGEST.start(), *LONGEST.end())
}

/// Cuts a sequence to its first `longest` tokens and keeps its final `<eos>`.
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
    fn a_sample_draws_from_every_batch_up_to_its_size() {
        let sequence = |length: usize| cut(&[vec![0], vec![5; length], vec![2]].concat(), 512);
        let batch = |first: usize| (first..first + CANDIDATES).map(sequence).collect();
        let long = vec![vec![sequence(1022); CANDIDATES]; 16];
        let lengths = |sequences: Vec<Vec<u8>>| -> Vec<usize> {
            sequences
                .iter()
                .map(|sequence| sequence.len() - 2)
                .collect()
        };
        for (of_batches, most_tokens, expected) in [
            (vec![], 4096, &[][..]),
            (vec![vec![sequence(30_000)]], 4096, &[510]),
            (
                vec![batch(10), batch(20)],
                4096,
                &[10, 21, 11, 22, 12, 23, 13, 20],
            ),
            (vec![batch(10), batch(20)], 40, &[10, 21]),
            (long, 4096, &[510; 8]),
        ] {
            let candidates = interleave(of_batches);
            let mut sample = ParitySample {
                candidates,
                most_tokens,
                logits: false,
            };
            assert_eq!(lengths(sample.choose(most_tokens)), expected);
            assert_eq!(lengths(sample.choose(11)), [0; 0], "none fits");
        }
        let mut sample = ParitySample {
            candidates: interleave(vec![batch(10), batch(20)]),
            most_tokens: 40,
            logits: false,
        };
        assert_eq!(lengths(sample.choose(40)), [10, 21]);
        assert_eq!(lengths(sample.choose(40)), [11, 22], "others");
        let cut = sequence(1022);
        assert_eq!((cut.len(), cut[0], cut[511]), (512, 0, 2));
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
