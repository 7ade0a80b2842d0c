//! Variable-length batches: sequences that lie end to end, with their offsets.

use std::ops::Range;

use plmkit_contract::{CLS, Column, EOS, MASK, Widths};
use plmkit_cpu::share_kept;

use crate::buffers::{Buffer, Buffers};

/// `<unk>`, the least token id inside a sequence: `<cls>`, `<pad>` and `<eos>` are less.
const UNK: u8 = 3;
/// The break between chains in ESMC, which attends to several chains otherwise, and no token in ESM-2.
const CHAIN_BREAK: u8 = MASK - 1;

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
        let &[first, .., last] = cu_seqlens else {
            return Err(format!(
                "cu_seqlens has {} entries; expected one more than there are sequences, at least 2",
                cu_seqlens.len()
            ));
        };
        if first != 0 || usize::try_from(last) != Ok(tokens.len()) {
            return Err(format!(
                "cu_seqlens runs from {first} to {last}; expected 0 to {}, the number of tokens",
                tokens.len()
            ));
        }
        for (sequence, bounds) in cu_seqlens.windows(2).enumerate() {
            let (start, end) = (bounds[0], bounds[1]);
            let length = i64::from(end) - i64::from(start);
            if length < 3 {
                return Err(format!(
                    "sequence {sequence} of the batch runs from {start} to {end}; expected at least 3 tokens"
                ));
            }
        }
        let batch = Self { tokens, cu_seqlens };
        // The offsets increase from 0 to the number of tokens, so that every span is inside.
        for (sequence, span) in batch.spans().enumerate() {
            check_tokens(sequence, &tokens[span])?;
        }
        Ok(batch)
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

fn check_tokens(sequence: usize, tokens: &[u8]) -> Result<(), String> {
    let last = tokens.len() - 1;
    for (position, &found) in tokens.iter().enumerate() {
        let (fits, expected) = match position {
            0 => (found == CLS, "<cls> (0)"),
            _ if position == last => (found == EOS, "<eos> (2)"),
            _ => (
                (UNK..=MASK).contains(&found) && found != CHAIN_BREAK,
                "3 to 30, or 32",
            ),
        };
        if !fits {
            return Err(format!(
                "sequence {sequence} of the batch has token {found} at {position}; expected {expected}"
            ));
        }
    }
    Ok(())
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

    #[test]
    fn offsets_that_do_not_divide_the_tokens_are_refused() {
        let short = |sequence, start: i32, end: i32| {
            format!(
                "sequence {sequence} of the batch runs from {start} to {end}; expected at least 3 tokens"
            )
        };
        let ends = |first, last| {
            format!("cu_seqlens runs from {first} to {last}; expected 0 to 7, the number of tokens")
        };
        for (cu_seqlens, expected) in [
            (
                &[][..],
                "cu_seqlens has 0 entries; expected one more than there are sequences, at least 2"
                    .to_owned(),
            ),
            (
                &[0],
                "cu_seqlens has 1 entries; expected one more than there are sequences, at least 2"
                    .to_owned(),
            ),
            (&[1, 7], ends(1, 7)),
            (&[0, 4], ends(0, 4)),
            (&[0, -1], ends(0, -1)),
            (&[0, 4, 4, 7], short(1, 4, 4)),
            (&[0, 90, 7], short(1, 90, 7)),
            (&[0, i32::MIN, 7], short(0, 0, i32::MIN)),
            (
                &[0, 3, 7],
                "sequence 0 of the batch has token 5 at 2; expected <eos> (2)".to_owned(),
            ),
        ] {
            let error = Varlen::new(&TOKENS, cu_seqlens).unwrap_err();
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn special_tokens_are_at_the_ends_and_nowhere_else() {
        for (tokens, expected) in [
            ([20, 5, 2], "token 20 at 0; expected <cls> (0)"),
            ([0, 5, 5], "token 5 at 2; expected <eos> (2)"),
            ([0, 0, 2], "token 0 at 1; expected 3 to 30, or 32"),
            ([0, 1, 2], "token 1 at 1; expected 3 to 30, or 32"),
            ([0, 2, 2], "token 2 at 1; expected 3 to 30, or 32"),
            ([0, 31, 2], "token 31 at 1; expected 3 to 30, or 32"),
            ([0, 33, 2], "token 33 at 1; expected 3 to 30, or 32"),
        ] {
            let error = Varlen::new(&tokens, &[0, 3]).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        }
        let error = Varlen::new(&[0, 2], &[0, 2]).unwrap_err();
        assert!(error.ends_with("expected at least 3 tokens"), "{error}");
        assert!(Varlen::new(&[0, 3, 2, 0, 32, 2], &[0, 3, 6]).is_ok());
    }
}
