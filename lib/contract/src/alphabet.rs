//! ESM-2's alphabet: residues and their token ids.
//!
//! The ids are those of fair-esm's `Alphabet.from_architecture("ESM-1b")`.

/// The residues of ESM-2's vocabulary in token order: the twenty amino acids, the ambiguous `X`, `B` and `Z`,
/// selenocysteine `U` and pyrrolysine `O`.
pub const RESIDUES: &[u8; 25] = b"LAGVSERTIDPKQNFYMHWCXBUZO";

/// The twenty amino acids in the order of scores.
pub const AMINO_ACIDS: &[u8; 20] = b"ACDEFGHIKLMNPQRSTVWY";

/// The token id of the first of [`RESIDUES`].
pub const FIRST_RESIDUE_TOKEN: u8 = 4;

/// The token that begins every sequence.
pub const CLS: u8 = 0;
/// The token that ends every sequence.
pub const EOS: u8 = 2;
/// The token of a masked residue, the largest of all.
pub const MASK: u8 = 32;
/// The number of special tokens in a row: `<cls>` and `<eos>`.
pub const SPECIAL_TOKENS: u32 = 2;

/// Marks a byte without a token in [`TOKENS`].
const NO_TOKEN: u8 = u8::MAX;

const TOKENS: [u8; 256] = {
    let mut table = [NO_TOKEN; 256];
    let mut i = 0;
    while i < RESIDUES.len() {
        table[RESIDUES[i] as usize] = FIRST_RESIDUE_TOKEN + i as u8;
        i += 1;
    }
    table
};

/// Returns the residue of a token, or `None` for special tokens such as `<cls>` and `<mask>`.
///
/// ```
/// use plmkit_contract::residue_of;
/// assert_eq!([20, 15, 7].map(residue_of), [Some(b'M'), Some(b'K'), Some(b'V')]);
/// assert_eq!([0, 2, 3, 29, 32].map(residue_of), [None; 5]);
/// ```
pub fn residue_of(token: u8) -> Option<u8> {
    let place = token.checked_sub(FIRST_RESIDUE_TOKEN)?;
    RESIDUES.get(usize::from(place)).copied()
}

/// A character without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("residue {position} has no token: expected one of {expected}, found '{found}'", expected = RESIDUES.escape_ascii(), found = found.escape_ascii())]
pub struct UnknownResidue {
    /// Its 1-based position.
    pub position: usize,
    /// The character.
    pub found: u8,
}

/// Appends `<cls> residues <eos>` to `tokens`. On an error, `tokens` is unchanged.
///
/// ```
/// let mut tokens = Vec::new();
/// plmkit_contract::tokenize(b"MKV", &mut tokens)?;
/// assert_eq!(tokens, [0, 20, 15, 7, 2]);
/// # Ok::<(), plmkit_contract::UnknownResidue>(())
/// ```
pub fn tokenize(residues: &[u8], tokens: &mut Vec<u8>) -> Result<(), UnknownResidue> {
    let before = tokens.len();
    tokens.reserve(residues.len() + SPECIAL_TOKENS as usize);
    tokens.push(CLS);
    tokens.extend(residues.iter().map(|&residue| TOKENS[residue as usize]));
    if let Some(i) = tokens[before..].iter().position(|&token| token == NO_TOKEN) {
        tokens.truncate(before);
        return Err(UnknownResidue {
            position: i,
            found: residues[i - 1],
        });
    }
    tokens.push(EOS);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_unknown_residue_is_an_error_and_leaves_the_tokens_unchanged() {
        let mut tokens = vec![0, 5, 2];
        let error = tokenize(b"MKj", &mut tokens).expect_err("lower case");
        assert_eq!(
            error,
            UnknownResidue {
                position: 3,
                found: b'j'
            }
        );
        assert!(error.to_string().ends_with("found 'j'"), "{error}");
        assert_eq!(tokens, [0, 5, 2]);
    }

    proptest! {
        #[test]
        fn tokens_are_mapped_back_to_residues(residues in proptest::collection::vec(proptest::sample::select(&RESIDUES[..]), 0..200)) {
            let mut tokens = vec![9];
            tokenize(&residues, &mut tokens).expect("residues");
            prop_assert_eq!(tokens[1], CLS);
            prop_assert_eq!(tokens[tokens.len() - 1], EOS);
            let inner = &tokens[2..tokens.len() - 1];
            let residues_again: Option<Vec<u8>> = inner.iter().map(|&token| residue_of(token)).collect();
            prop_assert_eq!(residues_again, Some(residues));
        }
    }
}
