//! Normalises sequences: which characters are residues, and what happens to others.

use clap::ValueEnum;
use plmkit_contract::{RESIDUES, UnknownResidue};
use serde::Serialize;

/// The policy for characters that are not residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
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

/// The upper-case residue of each byte, or 0. A table, because every byte of an input is looked up.
const UPPER_RESIDUES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < RESIDUES.len() {
        table[RESIDUES[i] as usize] = RESIDUES[i];
        table[RESIDUES[i].to_ascii_lowercase() as usize] = RESIDUES[i];
        i += 1;
    }
    table
};

/// Normalises the sequence of a record.
///
/// Removes white space and one terminal `*` (the stop codon in translations), and makes letters upper-case. If `replace` is set,
/// replaces other characters by `X`. Otherwise the first one is the error, at its position without white space; `sequence` has then
/// lost its white space and terminal `*`.
///
/// ```
/// use plmkit_sequence::normalise;
/// let mut sequence = b"MK v-*".to_vec();
/// assert_eq!(normalise(&mut sequence, false).unwrap_err().position, 4);
/// let changes = normalise(&mut sequence, true).unwrap();
/// assert_eq!(sequence, b"MKVX");
/// assert_eq!(changes.replaced, 1);
/// ```
pub fn normalise(sequence: &mut Vec<u8>, replace: bool) -> Result<ResidueChanges, UnknownResidue> {
    let mut changes = ResidueChanges::default();
    sequence.retain(|byte| !byte.is_ascii_whitespace());
    if sequence.last() == Some(&b'*') {
        sequence.pop();
        changes.stops_removed = 1;
    }
    if !replace
        && let Some(i) = sequence
            .iter()
            .position(|&byte| UPPER_RESIDUES[byte as usize] == 0)
    {
        return Err(UnknownResidue {
            position: i + 1,
            found: sequence[i],
        });
    }
    for byte in sequence {
        match UPPER_RESIDUES[*byte as usize] {
            0 => {
                *byte = b'X';
                changes.replaced += 1;
            }
            residue => {
                changes.uppercased += u64::from(*byte != residue);
                *byte = residue;
            }
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normalised(text: &str, replace: bool) -> Result<(String, ResidueChanges), UnknownResidue> {
        let mut sequence = text.as_bytes().to_vec();
        let changes = normalise(&mut sequence, replace)?;
        Ok((String::from_utf8(sequence).expect("ASCII"), changes))
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
            let changes = normalise(&mut sequence, true).expect("replaced");
            prop_assert_eq!(sequence.len() + changes.stops_removed as usize, before);
            prop_assert!(sequence.iter().all(|byte| RESIDUES.contains(byte)));
            let first = sequence.clone();
            prop_assert_eq!(normalise(&mut sequence, false), Ok(ResidueChanges::default()));
            prop_assert_eq!(sequence, first);
        }
    }
}
