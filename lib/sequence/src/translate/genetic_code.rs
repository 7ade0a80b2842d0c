//! NCBI's genetic codes.

use std::str::FromStr;

use serde::Serialize;

/// The genetic codes of NCBI's table (gc.prt, version 4.5): number, residue of each codon, codons that may start a protein.
/// Codons are in the order of their bases T, C, A, G, the last base fastest. In 27, 28 and 31, codons that end some proteins
/// and are residues in others are residues, as in NCBI's line `ncbieaa`.
const CODES: &str = include_str!("genetic_codes.txt");

/// A genetic code, by its number in NCBI's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GeneticCode(u8);

/// The standard code.
impl Default for GeneticCode {
    fn default() -> Self {
        Self(1)
    }
}

impl FromStr for GeneticCode {
    type Err = String;

    fn from_str(number: &str) -> Result<Self, String> {
        let known = lines().any(|line| line[0] == number);
        let code = number.parse().ok().filter(|_| known).map(Self);
        code.ok_or_else(|| {
            let numbers: Vec<&str> = lines().map(|line| line[0]).collect();
            format!(
                "expected one of NCBI's genetic codes: {}",
                numbers.join(", ")
            )
        })
    }
}

/// Iterates over the codes: number, residues, starts.
fn lines() -> impl Iterator<Item = [&'static str; 3]> {
    CODES.lines().map(|line| {
        let mut words = line.split(' ');
        std::array::from_fn(|_| words.next().expect("three words"))
    })
}

impl GeneticCode {
    /// Returns the residue of each codon, and M or - whether it may start a protein.
    pub(crate) fn codons(self) -> (&'static [u8], &'static [u8]) {
        let number = self.0.to_string();
        let [_, residues, starts] = lines()
            .find(|line| line[0] == number)
            .expect("a known code");
        (residues.as_bytes(), starts.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_ncbi_is_known_and_no_other() {
        let known = (0..=255u8).filter(|number| number.to_string().parse::<GeneticCode>().is_ok());
        let expected = (1..=6).chain(9..=16).chain(21..=33);
        assert!(known.eq(expected));
        for text in ["", "01", "+1", "1 ", "256", "standard"] {
            let error = text.parse::<GeneticCode>().expect_err("no code");
            assert!(error.ends_with("30, 31, 32, 33"), "{error}");
        }
    }

    #[test]
    fn every_code_gives_64_codons_their_residues() {
        for [_, residues, starts] in lines() {
            assert_eq!((residues.len(), starts.len()), (64, 64));
            let (residues, starts) = (residues.as_bytes(), starts.as_bytes());
            assert!(
                residues
                    .iter()
                    .all(|residue| b"ACDEFGHIKLMNPQRSTVWY*".contains(residue))
            );
            // ATG always may.
            assert!(residues[35] == b'M' && starts[35] == b'M');
            let mut pairs = residues.iter().zip(starts);
            assert!(
                pairs.all(|(&residue, &start)| start == b'-' || (start == b'M' && residue != b'*'))
            );
        }
    }
}
