//! Which characters are residues, and what becomes of the others.

use clap::ValueEnum;
use plmkit_contract::RESIDUES;
use serde::Serialize;

/// What to do with a character that is no residue.
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

/// What normalising a sequence changed, in residues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidueChanges {
    /// Lower-case letters that became upper-case.
    pub uppercased: u64,
    /// Invalid characters that became `X`.
    pub replaced: u64,
    /// Terminal stop marks (`*`) that were removed.
    pub stops_removed: u64,
}

/// The first character of a sequence that is no residue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidResidue {
    /// Its 1-based position, white space not counted.
    pub position: usize,
    /// The character.
    pub found: u8,
}

/// The residue that each byte stands for, in upper case; 0 where it stands for none. Every byte of an input is looked up.
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

/// Brings the bytes of a record's sequence lines into the form that is embedded.
///
/// White space is dropped, one terminal `*` (how translation tools mark the stop codon) is removed and letters are
/// made upper-case. Any other character is replaced by `X` if `replace` is set; otherwise the first one is the
/// error, and `sequence` is left without its white space and terminal `*`.
///
/// ```
/// use plmkit_sequence::normalise;
/// let mut sequence = b"MK v-*".to_vec();
/// assert_eq!(normalise(&mut sequence, false).unwrap_err().position, 4);
/// let changes = normalise(&mut sequence, true).unwrap();
/// assert_eq!(sequence, b"MKVX");
/// assert_eq!(changes.replaced, 1);
/// ```
pub fn normalise(sequence: &mut Vec<u8>, replace: bool) -> Result<ResidueChanges, InvalidResidue> {
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
        return Err(InvalidResidue {
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

    fn normalised(text: &str, replace: bool) -> Result<(String, ResidueChanges), InvalidResidue> {
        let mut sequence = text.as_bytes().to_vec();
        let changes = normalise(&mut sequence, replace)?;
        Ok((String::from_utf8(sequence).expect("ASCII"), changes))
    }

    #[test]
    fn every_residue_is_kept() {
        let all = std::str::from_utf8(RESIDUES).expect("ASCII");
        assert_eq!(
            normalised(all, false),
            Ok((all.to_owned(), ResidueChanges::default()))
        );
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
    fn one_terminal_stop_is_no_residue_but_an_inner_one_is_an_error() {
        assert_eq!(
            normalised("MK*", false).map(|(text, _)| text),
            Ok("MK".to_owned())
        );
        assert_eq!(
            normalised("*", false).map(|(text, _)| text),
            Ok(String::new())
        );
        for (text, position) in [("MK**", 3), ("M*K", 2), ("M *K", 2)] {
            assert_eq!(
                normalised(text, false),
                Err(InvalidResidue {
                    position,
                    found: b'*'
                }),
                "{text}"
            );
        }
    }

    #[test]
    fn characters_outside_the_vocabulary_are_invalid() {
        for found in ['J', 'j', '-', '.', '7', '>', '\0', '<'] {
            let expected = InvalidResidue {
                position: 2,
                found: found as u8,
            };
            assert_eq!(normalised(&format!("M{found}"), false), Err(expected));
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
