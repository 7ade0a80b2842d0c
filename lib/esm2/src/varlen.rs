//! A variable-length batch: sequences laid end to end, and where each begins.

use std::ops::Range;

use plmkit_contract::{Exit, Failure};

use crate::vocabulary::{CLS, EOS, MASK, UNK};

/// Token ids of several sequences laid end to end, with the offsets of each, checked.
///
/// The two slices are those that a packed batch file holds: `tokens` is `(total_tokens)`, each sequence being
/// `<cls> residues <eos>` in ESM-2's vocabulary of 33, and `cu_seqlens` is `(sequences + 1)`: sequence `i` is
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

/// Why two slices are not a batch.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VarlenError {
    /// There is no sequence.
    #[error(
        "cu_seqlens has {found} entries; expected one more than there are sequences, at least 2"
    )]
    Empty {
        /// Entries of `cu_seqlens`.
        found: usize,
    },
    /// The first offset or the last is not an end of the tokens.
    #[error("cu_seqlens runs from {first} to {last}; expected 0 to {tokens}, the number of tokens")]
    Ends {
        /// The first offset.
        first: i32,
        /// The last offset.
        last: i32,
        /// The number of tokens.
        tokens: usize,
    },
    /// A sequence that could not hold `<cls>`, a residue and `<eos>`.
    #[error(
        "sequence {sequence} of the batch runs from {start} to {end}; expected at least 3 tokens"
    )]
    TooShort {
        /// 0-based position in the batch.
        sequence: usize,
        /// Its first token.
        start: i32,
        /// One past its last token.
        end: i32,
    },
    /// A token that cannot stand where it does.
    #[error(
        "sequence {sequence} of the batch has token {found} at {position}; expected {expected}"
    )]
    Token {
        /// 0-based position in the batch.
        sequence: usize,
        /// 0-based position in the sequence.
        position: usize,
        /// What may stand there.
        expected: &'static str,
        /// The token id.
        found: u8,
    },
}

impl Failure for VarlenError {
    fn exit(&self) -> Exit {
        Exit::Data
    }
}

impl<'a> Varlen<'a> {
    /// Checks that `cu_seqlens` cuts `tokens` into whole sequences.
    pub fn new(tokens: &'a [u8], cu_seqlens: &'a [i32]) -> Result<Self, VarlenError> {
        let &[first, .., last] = cu_seqlens else {
            return Err(VarlenError::Empty {
                found: cu_seqlens.len(),
            });
        };
        if first != 0 || usize::try_from(last) != Ok(tokens.len()) {
            return Err(VarlenError::Ends {
                first,
                last,
                tokens: tokens.len(),
            });
        }
        for (sequence, bounds) in cu_seqlens.windows(2).enumerate() {
            let (start, end) = (bounds[0], bounds[1]);
            let length = i64::from(end) - i64::from(start);
            if length < 3 {
                return Err(VarlenError::TooShort {
                    sequence,
                    start,
                    end,
                });
            }
        }
        let batch = Self { tokens, cu_seqlens };
        // The offsets rise from 0 to the number of tokens: every span lies inside.
        for (sequence, span) in batch.spans().enumerate() {
            check_tokens(sequence, &tokens[span])?;
        }
        Ok(batch)
    }

    /// The token ids, `(total_tokens)`.
    pub fn tokens(&self) -> &'a [u8] {
        self.tokens
    }

    /// Where each sequence begins, and where the last one ends, `(sequences + 1)`.
    pub fn cu_seqlens(&self) -> &'a [i32] {
        self.cu_seqlens
    }

    /// The number of sequences.
    pub fn sequences(&self) -> usize {
        self.cu_seqlens.len() - 1
    }

    /// The number of tokens, `<cls>` and `<eos>` included.
    pub fn total_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Where each sequence lies in the tokens, in order.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        self.cu_seqlens
            .windows(2)
            .map(|bounds| bounds[0] as usize..bounds[1] as usize)
    }
}

fn check_tokens(sequence: usize, tokens: &[u8]) -> Result<(), VarlenError> {
    let last = tokens.len() - 1;
    for (position, &found) in tokens.iter().enumerate() {
        let (fits, expected) = match position {
            0 => (found == CLS, "<cls> (0)"),
            _ if position == last => (found == EOS, "<eos> (2)"),
            _ => ((UNK..=MASK).contains(&found), "3 to 32"),
        };
        if !fits {
            return Err(VarlenError::Token {
                sequence,
                position,
                expected,
                found,
            });
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
    fn offsets_that_are_no_cut_of_the_tokens_are_refused() {
        let error = |cu_seqlens: &[i32]| Varlen::new(&TOKENS, cu_seqlens).unwrap_err();
        assert_eq!(error(&[]), VarlenError::Empty { found: 0 });
        assert_eq!(error(&[0]), VarlenError::Empty { found: 1 });
        assert!(matches!(error(&[1, 7]), VarlenError::Ends { first: 1, .. }));
        assert!(matches!(error(&[0, 4]), VarlenError::Ends { last: 4, .. }));
        assert!(matches!(
            error(&[0, -1]),
            VarlenError::Ends { last: -1, .. }
        ));
        assert!(matches!(
            error(&[0, 4, 4, 7]),
            VarlenError::TooShort { sequence: 1, .. }
        ));
        assert!(matches!(
            error(&[0, 90, 7]),
            VarlenError::TooShort { sequence: 1, .. }
        ));
        assert!(matches!(
            error(&[0, i32::MIN, 7]),
            VarlenError::TooShort { sequence: 0, .. }
        ));
        assert!(matches!(
            error(&[0, 3, 7]),
            VarlenError::Token {
                position: 2,
                found: 5,
                ..
            }
        ));
    }

    #[test]
    fn special_tokens_stand_at_the_ends_and_nowhere_else() {
        let error = |tokens: &[u8]| Varlen::new(tokens, &[0, tokens.len() as i32]).unwrap_err();
        for tokens in [
            [20, 5, 2],
            [0, 5, 5],
            [0, 0, 2],
            [0, 1, 2],
            [0, 2, 2],
            [0, 33, 2],
            [0, 255, 2],
        ] {
            assert!(
                matches!(error(&tokens), VarlenError::Token { .. }),
                "{tokens:?}"
            );
        }
        assert!(Varlen::new(&[0, 3, 2], &[0, 3]).is_ok());
        assert!(Varlen::new(&[0, 32, 2], &[0, 3]).is_ok());
    }
}
