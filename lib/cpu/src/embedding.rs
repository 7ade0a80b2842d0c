//! Token ids to vectors.

use std::ops::Range;

use plmkit_contract::MASK;

use crate::{Isa, LayerNorm, RowsMut};

/// The share of tokens that were masked in training: 80 % of 15 %.
pub const MASKED_IN_TRAINING: f64 = 0.15 * 0.8;

/// The embedding table with fair-esm's token dropout, which applies at inference too.
#[derive(Debug)]
pub struct Embedding {
    /// `(vocabulary, hidden)`
    table: Vec<f32>,
    hidden: usize,
    token_dropout: bool,
    isa: Isa,
    /// `(positions, hidden)`: added to the vectors, from the first row for `<cls>`.
    pub positions: Option<Vec<f32>>,
    /// Applied last.
    pub norm: Option<LayerNorm>,
}

impl Embedding {
    /// Takes the stored word embeddings, `(vocabulary, hidden)`.
    ///
    /// With token dropout, the row of `<mask>` is zero, and every vector is scaled by `(1 - 0.12) / (1 - m)`: `m` is the share
    /// of `<mask>` in its sequence, with `<cls>` and `<eos>`. This function multiplies the table by the numerator, which
    /// rounds like multiplying the vectors.
    pub fn new(isa: Isa, mut words: Vec<f32>, hidden: usize, token_dropout: bool) -> Self {
        if token_dropout {
            let scale = (1.0 - MASKED_IN_TRAINING) as f32;
            for value in &mut words {
                *value *= scale;
            }
            words[usize::from(MASK) * hidden..][..hidden].fill(0.0);
        }
        Self {
            table: words,
            hidden,
            token_dropout,
            isa,
            positions: None,
            norm: None,
        }
    }

    /// Returns layer 0 of the model, `(tokens, hidden)`, in `x`. `sequences` cover all tokens in order.
    ///
    /// # Panics
    /// If a token is no row of the table, a sequence is longer than the table of positions, or `x` has another size.
    pub fn apply(&self, tokens: &[u8], sequences: &[Range<usize>], x: &mut [f32]) {
        assert_eq!(x.len(), tokens.len() * self.hidden, "the shapes fit");
        for (token, x) in tokens.iter().zip(x.chunks_exact_mut(self.hidden)) {
            x.copy_from_slice(&self.table[usize::from(*token) * self.hidden..][..self.hidden]);
        }
        for sequence in sequences {
            let kept = share_kept(&tokens[sequence.clone()]);
            let own = &mut x[sequence.start * self.hidden..sequence.end * self.hidden];
            if self.token_dropout && kept < 1.0 {
                for value in &mut *own {
                    *value /= kept;
                }
            }
            if let Some(positions) = &self.positions {
                assert!(own.len() <= positions.len(), "each token has a position");
                for (value, position) in own.iter_mut().zip(positions) {
                    *value += position;
                }
            }
        }
        if let Some(norm) = &self.norm {
            norm.apply_in_place(self.isa, &mut RowsMut::new(x, self.hidden), 0);
        }
    }
}

/// Returns the share of unmasked tokens of a sequence.
pub fn share_kept(tokens: &[u8]) -> f32 {
    let masks = tokens.iter().copied().filter(|&token| token == MASK);
    let masks = masks.count();
    1.0 - masks as f32 / tokens.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Embeds sequences that begin and end at `offsets`.
    fn embed(tokens: &[u8], offsets: &[usize], token_dropout: bool) -> Vec<f32> {
        let sequences = offsets.windows(2).map(|bounds| bounds[0]..bounds[1]);
        let sequences: Vec<_> = sequences.collect();
        let words = (1..=33u8).map(f32::from).collect();
        let mut x = vec![f32::NAN; tokens.len()];
        let embedding = Embedding::new(Isa::Portable, words, 1, token_dropout);
        embedding.apply(tokens, &sequences, &mut x);
        x
    }

    #[test]
    fn without_masks_vectors_are_scaled_by_the_share_kept_in_training() {
        let scaled = [0u8, 5, 2].map(|token| (f32::from(token) + 1.0) * 0.88);
        assert_eq!(embed(&[0, 5, 2], &[0, 3], true), scaled);
    }

    #[test]
    fn masks_are_counted_for_each_sequence() {
        let vectors = embed(&[0, 32, 5, 2, 0, 5, 2], &[0, 4, 7], true);
        let kept = 1.0 - 1.0 / 4.0;
        assert_eq!(vectors[1], 0.0);
        assert_eq!(vectors[2], 6.0 * 0.88 / kept);
        assert_eq!(vectors[5], 6.0 * 0.88);
    }

    /// The mask of the second sequence scales its words and not its positions.
    #[test]
    fn positions_restart_in_each_sequence_and_the_norm_is_last() {
        let words = (1..=33u8)
            .flat_map(|token| [f32::from(token), 0.0])
            .collect();
        let mut embedding = Embedding::new(Isa::Portable, words, 2, true);
        embedding.positions = Some((0..8).map(|value| 100.0 * value as f32).collect());
        let mut x = [f32::NAN; 14];
        let (tokens, sequences) = ([0, 5, 2, 0, 32, 5, 2], [0..3, 3..7]);
        embedding.apply(&tokens, &sequences, &mut x);
        assert_eq!(
            x[2..6],
            [6.0 * 0.88 + 200.0, 300.0, 3.0 * 0.88 + 400.0, 500.0]
        );
        assert_eq!(x[8..12], [200.0, 300.0, 6.0 * 0.88 / 0.75 + 400.0, 500.0]);
        embedding.norm = Some(LayerNorm {
            weight: vec![1.0, 2.0],
            bias: vec![0.0, 0.0],
            eps: 1e-5,
        });
        embedding.apply(&tokens, &sequences, &mut x);
        assert!(
            (x[8] + 1.0).abs() < 1e-4 && (x[9] - 2.0).abs() < 1e-4,
            "{x:?}"
        );
    }

    #[test]
    fn without_token_dropout_rows_are_not_scaled() {
        assert_eq!(embed(&[0, 32, 2], &[0, 3], false), [1.0, 33.0, 3.0]);
    }
}
