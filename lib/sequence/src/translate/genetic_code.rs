//! NCBI's genetic codes.

/// The genetic codes of NCBI's table (gc.prt, version 4.5): number, residue of each codon, codons that may start a protein.
/// Codons are in the order of their bases T, C, A, G, the last base fastest. In 27, 28 and 31, codons that end some proteins
/// and are residues in others are residues, as in NCBI's line `ncbieaa`.
const CODES: &str = include_str!("genetic_codes.txt");

/// The number of the standard code.
pub const STANDARD_CODE: u8 = 1;

/// Reads the number of a genetic code in NCBI's table.
///
/// # Errors
/// The table has no such code.
pub fn genetic_code(number: &str) -> Result<u8, String> {
    let known = lines().any(|line| line[0] == number);
    let code = number.parse().ok().filter(|_| known);
    code.ok_or_else(|| {
        let numbers: Vec<&str> = lines().map(|line| line[0]).collect();
        format!(
            "expected one of NCBI's genetic codes: {}",
            numbers.join(", ")
        )
    })
}

/// Iterates over the codes: number, residues, starts.
fn lines() -> impl Iterator<Item = [&'static str; 3]> {
    CODES.lines().map(|line| {
        let mut words = line.split(' ');
        std::array::from_fn(|_| words.next().expect("three words"))
    })
}

/// Returns the residue of each codon by the code of this number, and M or - whether it may start a protein.
///
/// # Panics
/// If there is no such code.
pub(crate) fn codons(code: u8) -> (&'static [u8], &'static [u8]) {
    let number = code.to_string();
    let mut lines = lines();
    let [_, residues, starts] = lines.find(|line| line[0] == number).expect("a known code");
    (residues.as_bytes(), starts.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_ncbi_is_known_and_no_other() {
        let known = (0..=255u8).filter(|number| genetic_code(&number.to_string()).is_ok());
        let expected = (1..=6).chain(9..=16).chain(21..=33);
        assert!(known.eq(expected));
        for text in ["", "01", "+1", "1 ", "256", "standard"] {
            let error = genetic_code(text).expect_err("no code");
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
