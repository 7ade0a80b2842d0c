//! The form of a batch of sequences that lie end to end.

use crate::{CLS, EOS, MASK};

/// `<unk>`, the least token id inside a sequence: `<cls>`, `<pad>` and `<eos>` are less.
const UNK: u8 = 3;
/// The break between chains in ESMC, which attends to several chains otherwise, and no token in ESM-2.
const CHAIN_BREAK: u8 = MASK - 1;

/// Checks that `cu_seqlens`, `(sequences + 1)`, divides `tokens`, `(total_tokens)`, into complete sequences: `<cls>`, at least one
/// residue, `<eos>`. An error tells what was expected, and what was found.
pub fn check_sequences(tokens: &[u8], cu_seqlens: &[i32]) -> Result<(), String> {
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
    // The offsets increase from 0 to the number of tokens, so that every sequence is inside.
    for (sequence, bounds) in cu_seqlens.windows(2).enumerate() {
        check_tokens(sequence, &tokens[bounds[0] as usize..bounds[1] as usize])?;
    }
    Ok(())
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
            let error = check_sequences(&TOKENS, cu_seqlens).unwrap_err();
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
            let error = check_sequences(&tokens, &[0, 3]).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        }
        let error = check_sequences(&[0, 2], &[0, 2]).unwrap_err();
        assert!(error.ends_with("expected at least 3 tokens"), "{error}");
        assert!(check_sequences(&[0, 3, 2, 0, 32, 2], &[0, 3, 6]).is_ok());
    }
}
