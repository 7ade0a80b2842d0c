//! ESM-2's alphabet: residues to token ids and back.
//!
//! The ids are those of fair-esm's `Alphabet.from_architecture("ESM-1b")`.

use plmkit_contract::{FIRST_RESIDUE_TOKEN, RESIDUES};

/// The token that begins every sequence.
pub const CLS: u8 = 0;
/// The token that ends every sequence.
pub const EOS: u8 = 2;
/// Tokens of a row beyond its residues.
pub const SPECIAL_TOKENS: u32 = 2;

/// Stands for "no token" in the table.
const NONE: u8 = u8::MAX;

const TOKEN_OF: [u8; 256] = {
    let mut table = [NONE; 256];
    let mut i = 0;
    while i < RESIDUES.len() {
        table[RESIDUES[i] as usize] = FIRST_RESIDUE_TOKEN + i as u8;
        i += 1;
    }
    table
};

/// A character that has no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("residue {position} has no token: expected one of {expected}, found '{found}'", expected = RESIDUES.escape_ascii(), found = found.escape_ascii())]
pub struct UnknownResidue {
    /// Its 1-based position.
    pub position: usize,
    /// The character.
    pub found: u8,
}

/// Appends `<cls> residues <eos>` to `tokens`, which is unchanged where there is an error.
///
/// ```
/// let mut tokens = Vec::new();
/// plmkit_sequence::tokenize(b"MKV", &mut tokens)?;
/// assert_eq!(tokens, [0, 20, 15, 7, 2]);
/// # Ok::<(), plmkit_sequence::UnknownResidue>(())
/// ```
pub fn tokenize(residues: &[u8], tokens: &mut Vec<u8>) -> Result<(), UnknownResidue> {
    let before = tokens.len();
    tokens.reserve(residues.len() + SPECIAL_TOKENS as usize);
    tokens.push(CLS);
    tokens.extend(residues.iter().map(|&residue| TOKEN_OF[residue as usize]));
    if let Some(i) = tokens[before..].iter().position(|&token| token == NONE) {
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
    use plmkit_contract::residue_of;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_those_of_fair_esm() {
        let mut tokens = Vec::new();
        tokenize(b"LAGVSERTIDPKQNFYMHWCXBUZO", &mut tokens).expect("residues");
        assert_eq!(tokens[0], 0);
        assert_eq!(tokens[1..26], (4..=28).collect::<Vec<u8>>());
        assert_eq!(tokens[26], 2);
    }

    #[test]
    fn what_is_no_residue_is_refused_and_leaves_the_batch_alone() {
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
        fn tokens_tell_the_residues(residues in proptest::collection::vec(proptest::sample::select(&RESIDUES[..]), 0..200)) {
            let mut tokens = vec![9];
            tokenize(&residues, &mut tokens).expect("residues");
            prop_assert_eq!(tokens[1], CLS);
            prop_assert_eq!(tokens[tokens.len() - 1], EOS);
            let inner = &tokens[2..tokens.len() - 1];
            let told: Option<Vec<u8>> = inner.iter().map(|&token| residue_of(token)).collect();
            prop_assert_eq!(told, Some(residues));
        }
    }
}
