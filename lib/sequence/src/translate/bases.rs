//! Bases as sets: of each letter, the bases that it may stand for.

use plmkit_contract::UnknownResidue;

use crate::residue::ResidueChanges;

/// The sets, as bits, of the bases in the order of genetic codes: T, C, A, G.
const LETTERS: [(u8, u8); 16] = [
    (b'T', 0b0001),
    (b'U', 0b0001),
    (b'C', 0b0010),
    (b'A', 0b0100),
    (b'G', 0b1000),
    (b'Y', 0b0011),
    (b'R', 0b1100),
    (b'M', 0b0110),
    (b'K', 0b1001),
    (b'S', 0b1010),
    (b'W', 0b0101),
    (b'B', 0b1011),
    (b'D', 0b1101),
    (b'H', 0b0111),
    (b'V', 0b1110),
    (b'N', ANY),
];

/// The set of N.
const ANY: u8 = 0b1111;

/// The set of each byte; 0 if it is no IUPAC code of nucleotides.
static SETS: [u8; 256] = {
    let mut sets = [0; 256];
    let mut i = 0;
    while i < LETTERS.len() {
        let (letter, set) = LETTERS[i];
        sets[letter as usize] = set;
        sets[letter.to_ascii_lowercase() as usize] = set;
        i += 1;
    }
    sets
};

/// Returns the set of the bases that pair with those of `set`.
pub(super) const fn complement(set: u8) -> u8 {
    ((set << 2) | (set >> 2)) & ANY
}

/// Replaces the letters of a contig by sets, in place, and returns their number. Bytes after it have no meaning.
///
/// Removes white space. If `replace` is set, other characters become N, and are counted. Otherwise the first one is the error, at
/// its position without white space.
pub(crate) fn to_sets(
    sequence: &mut [u8],
    replace: bool,
) -> (usize, Result<ResidueChanges, UnknownResidue>) {
    let (mut length, mut invalid) = (0, None);
    let mut changes = ResidueChanges::default();
    for at in 0..sequence.len() {
        let found = sequence[at];
        let mut set = SETS[usize::from(found)];
        if set == 0 {
            if found.is_ascii_whitespace() {
                continue;
            }
            let position = length + 1;
            invalid.get_or_insert(UnknownResidue { position, found });
            changes.replaced += 1;
            set = ANY;
        }
        sequence[length] = set;
        length += 1;
    }
    match invalid {
        Some(invalid) if !replace => (length, Err(invalid)),
        _ => (length, Ok(changes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_their_complements_are_those_of_iupac() {
        let set = |letter: u8| SETS[usize::from(letter)];
        for (letter, complementary) in b"ACGTURYSWKMBDHVN".iter().zip(b"TGCAAYRSWMKVHDBN") {
            assert_eq!(complement(set(*letter)), set(*complementary), "{letter}");
            assert_eq!(set(*letter), set(letter.to_ascii_lowercase()));
        }
        for (letter, bases) in [
            (b'R', "AG"),
            (b'S', "CG"),
            (b'K', "GT"),
            (b'B', "CGT"),
            (b'D', "AGT"),
        ] {
            assert_eq!(set(letter), bases.bytes().map(set).sum::<u8>(), "{letter}");
        }
        assert_eq!(SETS.iter().filter(|set| **set != 0).count(), 32);
    }

    #[test]
    fn white_space_goes_and_other_characters_are_errors_or_n() {
        let mut sequence = *b"aC g-TX";
        let (length, error) = to_sets(&mut sequence.clone(), false);
        let expected = UnknownResidue {
            position: 4,
            found: b'-',
        };
        assert_eq!((length, error), (6, Err(expected)));
        let (length, changes) = to_sets(&mut sequence, true);
        assert_eq!((length, changes.expect("replaced").replaced), (6, 2));
        assert_eq!(
            sequence[..6],
            *b"ACGNTN".map(|letter| SETS[usize::from(letter)]).as_slice()
        );
    }
}
