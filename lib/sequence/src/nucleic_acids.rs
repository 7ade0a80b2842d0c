//! Checks that an input holds proteins, or nucleic acids if it is to be translated.

use crate::error::ShardError;
use crate::input::Input;

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

    /// Adds the next record. Returns true once the input is known to hold what is not expected.
    pub(crate) fn add(&mut self, found: Alphabet) -> bool {
        if !self.is_open() {
            return false;
        }
        self.records += 1;
        self.judged += u64::from(found != Alphabet::Unknown);
        self.nucleic += u64::from(found == Alphabet::NucleicAcids);
        self.records == RECORDS && self.is_unexpected()
    }

    /// Whether most of the counted records are nucleic acids and should be proteins, or the other way round.
    pub(crate) fn is_unexpected(&self) -> bool {
        let is_nucleic = 2 * self.nucleic > self.judged;
        is_nucleic != self.expected && self.judged > 0
    }

    /// Returns the error of an input that is not as expected.
    pub(crate) fn error(&self, input: &Input) -> ShardError {
        let input = input.clone();
        if self.expected {
            ShardError::Proteins(input)
        } else {
            ShardError::NucleicAcids(input)
        }
    }
}

/// What the letters of a record look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// It is too short to tell.
    Unknown,
    Protein,
    NucleicAcids,
}

/// Judges the letters of a record.
pub(crate) fn alphabet(sequence: &[u8]) -> Alphabet {
    let letters = sequence.iter().filter(|byte| byte.is_ascii_alphabetic());
    let bases = sequence
        .iter()
        .filter(|byte| b"ACGTUN".contains(&byte.to_ascii_uppercase()));
    match (letters.count(), bases.count()) {
        (..LETTERS, _) => Alphabet::Unknown,
        (letters, bases) if 20 * bases >= 19 * letters => Alphabet::NucleicAcids,
        _ => Alphabet::Protein,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_nucleic(sequences: &[&str]) -> bool {
        let unexpected = [false, true].map(|expected| {
            let mut check = NucleicAcidCheck::new(expected);
            for sequence in sequences {
                assert!(!check.add(alphabet(sequence.as_bytes())), "too early");
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
        assert!(is_nucleic(&[dna]) && is_nucleic(&[rna]) && is_nucleic(&[dna, rna, protein]));
        assert!(!is_nucleic(&[protein]) && !is_nucleic(&[protein, dna]) && !is_nucleic(&[]));
        assert!(!is_nucleic(&["GAGAGATGA", "TTTT"]), "short peptides");
        // 19 of 20 letters, and 18 of 20.
        assert!(is_nucleic(&["ACGTACGTACGTACGTACGR"]) && !is_nucleic(&["ACGTACGTACGTACGTACRR"]));
        assert!(
            is_nucleic(&["ACGT-ACGT-ACGT-ACGT-ACGT"]),
            "gaps are no letters"
        );
    }

    #[test]
    fn a_large_input_is_judged_by_its_beginning() {
        let mut check = NucleicAcidCheck::new(false);
        let found = (0..2 * RECORDS).position(|_| check.add(alphabet(&[b'A'; 30])));
        assert_eq!(found, Some(RECORDS as usize - 1));
    }
}
