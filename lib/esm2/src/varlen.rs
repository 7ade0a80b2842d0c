//! Variable-length batches: sequences that lie end to end, with their offsets.

use std::ops::Range;

use plmkit_contract::{Column, MASK, Widths, check_sequences};
use plmkit_cpu::share_kept;

use crate::buffers::{Buffer, Buffers};

/// Checked token ids of several sequences that lie end to end, with the offset of each.
///
/// The two slices are those of a batches file. `tokens` is `(total_tokens)`: each sequence is `<cls> residues <eos>` in
/// ESM-2's vocabulary of 33. `cu_seqlens` is `(sequences + 1)`: sequence `i` is
/// `tokens[cu_seqlens[i]..cu_seqlens[i + 1]]`.
///
/// ```
/// use plmkit_esm2::Varlen;
/// let tokens = [0, 20, 5, 2, 0, 6, 2]; // <cls> M A <eos> <cls> G <eos>
/// let batch = Varlen::new(&tokens, &[0, 4, 7]).unwrap();
/// assert_eq!((batch.sequences(), batch.total_tokens()), (2, 7));
/// assert!(Varlen::new(&tokens, &[0, 3, 7]).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Varlen<'a> {
    tokens: &'a [u8],
    cu_seqlens: &'a [i32],
}

impl<'a> Varlen<'a> {
    /// Checks that `cu_seqlens` divides `tokens` into complete sequences. An error tells what was expected, and what was found.
    pub fn new(tokens: &'a [u8], cu_seqlens: &'a [i32]) -> Result<Self, String> {
        check_sequences(tokens, cu_seqlens)?;
        Ok(Self { tokens, cu_seqlens })
    }

    /// Returns the token ids, `(total_tokens)`.
    pub fn tokens(&self) -> &'a [u8] {
        self.tokens
    }

    /// Returns where each sequence begins and the last one ends, `(sequences + 1)`.
    pub fn cu_seqlens(&self) -> &'a [i32] {
        self.cu_seqlens
    }

    /// Returns the number of sequences.
    pub fn sequences(&self) -> usize {
        self.cu_seqlens.len() - 1
    }

    /// Returns the number of tokens, with `<cls>` and `<eos>`.
    pub fn total_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the range of each sequence in the tokens.
    pub fn spans(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        self.cu_seqlens
            .windows(2)
            .map(|bounds| bounds[0] as usize..bounds[1] as usize)
    }

    /// Returns the tokens of the longest sequence.
    pub fn longest(&self) -> usize {
        self.spans().map(|span| span.len()).max().unwrap_or(0)
    }

    /// Returns the share of unmasked tokens of each sequence, or `None` if no token is masked.
    pub fn shares_kept(&self) -> Option<Vec<f32>> {
        let shares = || self.spans().map(|span| share_kept(&self.tokens[span]));
        self.tokens.contains(&MASK).then(|| shares().collect())
    }

    /// Takes memory for the values of each column of all sequences, for vectors of these `widths`.
    pub(crate) fn buffers(
        &self,
        columns: &[Column],
        widths: Widths,
        pool: &Buffers<f32>,
    ) -> Vec<Buffer<f32>> {
        let values = |column: &Column| {
            let residues = self.spans().map(|span| span.len() - 2);
            residues
                .map(|residues| column.values(residues, widths))
                .sum()
        };
        columns
            .iter()
            .map(|column| pool.take(values(column)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [u8; 7] = [0, 20, 5, 2, 0, 6, 2];

    #[test]
    fn spans_follow_the_offsets() {
        let batch = Varlen::new(&TOKENS, &[0, 4, 7]).unwrap();
        assert_eq!(batch.spans().collect::<Vec<_>>(), [0..4, 4..7]);
        assert_eq!(batch.total_tokens(), 7);
    }
}
