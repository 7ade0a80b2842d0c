//! Checks that an input holds proteins, or nucleic acids if it is to be translated.

use std::path::Path;

use crate::error::ShardError;
use crate::input::shown;

/// The number of records that are checked, from the start of an input.
const RECORDS: u64 = 1000;

/// The least letters of a record that counts: a short peptide may have any letters.
const LETTERS: usize = 20;

/// Counts records in which nearly all letters are those of DNA or RNA.
///
/// A, C, G, N and T are only a quarter of a typical protein.
#[derive(Debug)]
pub(crate) struct NucleicAcidCheck {
    /// Whether the input should hold nucleic acids.
    expected: bool,
    /// Records so far.
    records: u64,
    /// Records that are long enough to count.
    judged: u64,
    nucleic: u64,
}

impl NucleicAcidCheck {
    pub(crate) fn new(expected: bool) -> Self {
        Self {
            expected,
            records: 0,
            judged: 0,
            nucleic: 0,
        }
    }

    /// Whether it still needs records.
    pub(crate) fn is_open(&self) -> bool {
        self.records < RECORDS
    }

    /// Adds the next record, given whether it [looks like](is_nucleic) nucleic acids, and whether it is invalid. Returns true once the
    /// input is known to hold what is not expected.
    pub(crate) fn add(&mut self, is_nucleic: Option<bool>, is_invalid: bool) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.records += 1;
            self.judged += u64::from(is_nucleic.is_some());
            self.nucleic += u64::from(is_nucleic == Some(true));
        }
        // A character that is invalid may be of the other alphabet, as all others.
        (is_invalid || was_open && !self.is_open()) && self.is_unexpected()
    }

    /// Whether most of the counted records are nucleic acids and should be proteins, or the other way round.
    pub(crate) fn is_unexpected(&self) -> bool {
        let is_nucleic = 2 * self.nucleic > self.judged;
        is_nucleic != self.expected && self.judged > 0
    }

    /// Returns the error of an input that is not as expected.
    pub(crate) fn error(&self, input: &Path) -> ShardError {
        let what = if self.expected {
            "expected nucleic acids, found proteins: in most records more than one letter of 20 is not A, C, G, T, U or N; without --translate they are taken as they are, --alphabet nucleotide translates them"
        } else {
            "expected proteins, found nucleic acids: nearly all letters of most records are A, C, G, T, U or N; --translate orf or six-frame translates them, --alphabet protein takes them as residues"
        };
        ShardError::Text(shown(input).to_owned(), what.to_owned())
    }
}

/// Whether the letters of a record look like nucleic acids; `None` if it is too short to tell.
pub(crate) fn is_nucleic(sequence: &[u8]) -> Option<bool> {
    let (mut letters, mut bases) = (0, 0);
    // A sum in bytes of so few is one of vectors, and tells most proteins at once.
    for some in sequence.chunks(64) {
        let (mut letters_here, mut bases_here) = (0_u8, 0_u8);
        for byte in some {
            let letter = byte.to_ascii_uppercase();
            letters_here += u8::from(letter.is_ascii_uppercase());
            bases_here += u8::from(matches!(letter, b'A' | b'C' | b'G' | b'T' | b'U' | b'N'));
        }
        letters += usize::from(letters_here);
        bases += usize::from(bases_here);
        // As many others as all bytes that follow could not outweigh.
        if letters >= LETTERS && 20 * (letters - bases) > sequence.len() {
            return Some(false);
        }
    }
    (letters >= LETTERS).then_some(20 * bases >= 19 * letters)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Most are near the share that decides.
        #[test]
        fn a_record_is_judged_as_if_all_letters_were_counted(
            sequence in "([ACGTUNacgtun]{1,30}[-*A-Zd-z]{0,2}){0,12}"
        ) {
            let letters = sequence.bytes().filter(u8::is_ascii_alphabetic).count();
            let bases = sequence.to_uppercase().bytes().filter(|b| b"ACGTUN".contains(b)).count();
            let expected = (letters >= LETTERS).then_some(20 * bases >= 19 * letters);
            prop_assert_eq!(is_nucleic(sequence.as_bytes()), expected);
        }
    }

    fn are_nucleic(sequences: &[&str]) -> bool {
        let unexpected = [false, true].map(|expected| {
            let mut check = NucleicAcidCheck::new(expected);
            for sequence in sequences {
                assert!(
                    !check.add(is_nucleic(sequence.as_bytes()), false),
                    "too early"
                );
            }
            check.is_unexpected()
        });
        // Short records tell neither.
        assert_ne!(unexpected, [true, true]);
        unexpected[0]
    }

    #[test]
    fn nucleic_acids_are_distinguished_from_proteins() {
        let (dna, rna) = ("ACGTNacgtnACGTacgtnnGGCC", "AUGGCUUAAUGGCUUAAUGGCUUA");
        let protein = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ";
        assert!(are_nucleic(&[dna]) && are_nucleic(&[rna]) && are_nucleic(&[dna, rna, protein]));
        assert!(!are_nucleic(&[protein]) && !are_nucleic(&[protein, dna]) && !are_nucleic(&[]));
        assert!(!are_nucleic(&["GAGAGATGA", "TTTT"]), "short peptides");
        // 19 of 20 letters, and 18 of 20.
        assert!(are_nucleic(&["ACGTACGTACGTACGTACGR"]) && !are_nucleic(&["ACGTACGTACGTACGTACRR"]));
        assert!(
            are_nucleic(&["ACGT-ACGT-ACGT-ACGT-ACGT"]),
            "gaps are no letters"
        );
    }

    #[test]
    fn a_large_input_is_judged_by_its_beginning() {
        let mut check = NucleicAcidCheck::new(false);
        let found = (0..2 * RECORDS).position(|_| check.add(is_nucleic(&[b'A'; 30]), false));
        assert_eq!(found, Some(RECORDS as usize - 1));
    }
}
