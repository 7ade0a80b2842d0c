//! Residues and their token ids.

/// The residues of ESM-2's vocabulary in the order of their tokens: the twenty, the ambiguous `X`, `B` and `Z`,
/// selenocysteine and pyrrolysine.
pub const RESIDUES: &[u8; 25] = b"LAGVSERTIDPKQNFYMHWCXBUZO";

/// The token id of the first of [`RESIDUES`], as in fair-esm's `Alphabet.from_architecture("ESM-1b")`.
pub const FIRST_RESIDUE_TOKEN: u8 = 4;

/// The residue that a token stands for; `None` where it stands for none, as `<cls>` and `<mask>` do.
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
