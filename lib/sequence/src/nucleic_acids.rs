//! Whether an input holds proteins.

/// Records at the beginning of an input that are looked at.
const RECORDS: u64 = 1000;

/// Letters from which a record is judged: among so few, a peptide may be of any letters.
const LETTERS: usize = 20;

/// Counts the records of an input whose letters are nearly all those of DNA or RNA.
///
/// The letters A, C, G, N and T are a quarter of a usual protein, so even a short one has others.
#[derive(Debug, Default)]
pub(crate) struct NucleicAcidCheck {
    /// Records so far.
    records: u64,
    /// Those that are long enough.
    judged: u64,
    nucleic: u64,
}

impl NucleicAcidCheck {
    /// Looks at the next record of the input; true once it is clear that this is no input of proteins.
    pub(crate) fn add(&mut self, sequence: &[u8]) -> bool {
        self.records += 1;
        if self.records > RECORDS {
            return false;
        }
        let letters = sequence.iter().filter(|byte| byte.is_ascii_alphabetic());
        let bases = sequence
            .iter()
            .filter(|byte| b"ACGTUN".contains(&byte.to_ascii_uppercase()));
        let (letters, bases) = (letters.count(), bases.count());
        if letters >= LETTERS {
            self.judged += 1;
            self.nucleic += u64::from(20 * bases >= 19 * letters);
        }
        self.records == RECORDS && self.is_nucleic()
    }

    /// Whether most of the records that were looked at are nucleic acids.
    pub(crate) fn is_nucleic(&self) -> bool {
        2 * self.nucleic > self.judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_nucleic(sequences: &[&str]) -> bool {
        let mut check = NucleicAcidCheck::default();
        for sequence in sequences {
            assert!(!check.add(sequence.as_bytes()), "too early");
        }
        check.is_nucleic()
    }

    #[test]
    fn nucleic_acids_are_told_from_proteins() {
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
        let told = (0..2 * RECORDS).position(|_| check.add(&[b'A'; 30]));
        assert_eq!(told, Some(RECORDS as usize - 1));
    }
}
