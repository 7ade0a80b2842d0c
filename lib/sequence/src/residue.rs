//! Normalises sequences: which characters are residues, and what happens to others.

use plmkit_contract::UnknownResidue;
use serde::Serialize;
use strum::{Display, EnumMessage, VariantArray};

/// The policy for characters that are not residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumMessage, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum InvalidPolicy {
    /// Stop the run and name the record, the position and the character
    Error,
    /// Replace the character by X, the unknown residue
    X,
    /// Write the record to rejects.csv, and any record without an id
    Reject,
}

/// Numbers of residues that normalising changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidueChanges {
    /// Lower-case letters that became upper-case.
    pub uppercased: u64,
    /// Invalid characters that became `X`.
    pub replaced: u64,
    /// Terminal stop marks (`*`) that were removed.
    pub stops_removed: u64,
}

/// Whether `byte` is one of [`RESIDUES`](plmkit_contract::RESIDUES): an upper-case letter other than J. Every byte of an input is
/// looked at, and the compiler makes vector code of a comparison, but not of a table.
fn is_residue(byte: u8) -> bool {
    matches!(byte, b'A'..=b'I' | b'K'..=b'Z')
}

/// Normalises the sequence of a record in place, and returns its length.
///
/// Removes white space and one terminal `*` (the stop codon in translations), and makes letters upper-case. If `replace` is set,
/// replaces other characters by `X`. Otherwise the first one is the error, at its position without white space. Bytes after the
/// new length have no meaning.
///
/// ```
/// use plmkit_sequence::normalise;
/// let mut sequence = *b"MK v-*";
/// let (length, changes) = normalise(&mut sequence.clone(), false);
/// assert_eq!((length, changes.unwrap_err().position), (4, 4));
/// let (length, changes) = normalise(&mut sequence, true);
/// assert_eq!(&sequence[..length], b"MKVX");
/// assert_eq!(changes.unwrap().replaced, 1);
/// ```
pub fn normalise(
    sequence: &mut [u8],
    replace: bool,
) -> (usize, Result<ResidueChanges, UnknownResidue>) {
    let mut changes = ResidueChanges::default();
    // Most sequences are as they should be.
    if sequence.iter().fold(true, |all, &b| all & is_residue(b)) {
        return (sequence.len(), Ok(changes));
    }
    let mut length = 0;
    for at in 0..sequence.len() {
        sequence[length] = sequence[at];
        length += usize::from(!sequence[at].is_ascii_whitespace());
    }
    if sequence[..length].last() == Some(&b'*') {
        length -= 1;
        changes.stops_removed = 1;
    }
    let sequence = &mut sequence[..length];
    let is_known = |byte: u8| is_residue(byte.to_ascii_uppercase());
    if !replace && let Some(i) = sequence.iter().position(|&byte| !is_known(byte)) {
        let found = sequence[i];
        let position = i + 1;
        return (length, Err(UnknownResidue { position, found }));
    }
    for byte in sequence {
        if is_known(*byte) {
            changes.uppercased += u64::from(byte.is_ascii_lowercase());
            byte.make_ascii_uppercase();
        } else {
            *byte = b'X';
            changes.replaced += 1;
        }
    }
    (length, Ok(changes))
}

#[cfg(test)]
mod tests {
    use plmkit_contract::RESIDUES;
    use proptest::prelude::*;

    use super::*;

    fn normalised(text: &str, replace: bool) -> Result<(String, ResidueChanges), UnknownResidue> {
        let mut sequence = text.as_bytes().to_vec();
        let (length, changes) = normalise(&mut sequence, replace);
        sequence.truncate(length);
        changes.map(|changes| (String::from_utf8(sequence).expect("ASCII"), changes))
    }

    #[test]
    fn the_letters_of_the_vocabulary_are_residues() {
        for byte in 0..=u8::MAX {
            assert_eq!(is_residue(byte), RESIDUES.contains(&byte), "{byte}");
        }
    }

    #[test]
    fn changes_are_counted() {
        let changes = ResidueChanges {
            uppercased: 2,
            replaced: 3,
            stops_removed: 1,
        };
        assert_eq!(
            normalised("mK\tV j-\r1w*", true),
            Ok(("MKVXXXW".to_owned(), changes))
        );
    }

    #[test]
    fn one_terminal_stop_is_removed_and_an_inner_one_is_an_error() {
        for (text, expected) in [("MK*", "MK"), ("*", "")] {
            let (found, _) = normalised(text, false).expect("one stop");
            assert_eq!(found, expected);
        }
        for (text, position) in [("MK**", 3), ("M*K", 2), ("M *K", 2)] {
            let found = b'*';
            let expected = Err(UnknownResidue { position, found });
            assert_eq!(normalised(text, false), expected, "{text}");
        }
    }

    #[test]
    fn characters_outside_the_vocabulary_are_invalid() {
        for found in *b"Jj-.7>\0<" {
            let text = format!("M{}", found as char);
            let position = 2;
            let expected = Err(UnknownResidue { position, found });
            assert_eq!(normalised(&text, false), expected);
        }
    }

    proptest! {
        #[test]
        fn the_result_holds_residues_only_and_is_stable(mut sequence: Vec<u8>) {
            let before = sequence.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
            let (length, changes) = normalise(&mut sequence, true);
            let changes = changes.expect("replaced");
            sequence.truncate(length);
            prop_assert_eq!(length + changes.stops_removed as usize, before);
            prop_assert!(sequence.iter().all(|byte| RESIDUES.contains(byte)));
            let first = sequence.clone();
            prop_assert_eq!(normalise(&mut sequence, false), (length, Ok(ResidueChanges::default())));
            prop_assert_eq!(sequence, first);
        }
    }
}
