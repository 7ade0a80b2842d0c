//! Checks that an input holds proteins.

/// The number of records that are checked, from the start of an input.
const RECORDS: u64 = 1000;

/// The least letters of a record that counts: a short peptide may have any letters.
const LETTERS: usize = 20;

/// Counts records in which nearly all letters are those of DNA or RNA.
///
/// A, C, G, N and T are only a quarter of a typical protein.
#[derive(Debug, Default)]
pub(crate) struct NucleicAcidCheck {
    /// Records so far.
    records: u64,
    /// Records that are long enough to count.
    judged: u64,
    nucleic: u64,
}

impl NucleicAcidCheck {
    /// Whether it still needs records.
    pub(crate) fn is_open(&self) -> bool {
        self.records < RECORDS
    }

    /// Adds the next record. Returns true once the input is known to be nucleic acids.
    pub(crate) fn add(&mut self, found: Alphabet) -> bool {
        if !self.is_open() {
            return false;
        }
        self.records += 1;
        self.judged += u64::from(found != Alphabet::Unknown);
        self.nucleic += u64::from(found == Alphabet::NucleicAcids);
        self.records == RECORDS && self.is_nucleic()
    }

    /// Whether most of the counted records are nucleic acids.
    pub(crate) fn is_nucleic(&self) -> bool {
        2 * self.nucleic > self.judged
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
        let mut check = NucleicAcidCheck::default();
        for sequence in sequences {
            assert!(!check.add(alphabet(sequence.as_bytes())), "too early");
        }
        check.is_nucleic()
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
        let mut check = NucleicAcidCheck::default();
        let found = (0..2 * RECORDS).position(|_| check.add(alphabet(&[b'A'; 30])));
        assert_eq!(found, Some(RECORDS as usize - 1));
    }
}
