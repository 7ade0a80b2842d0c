//! The proteins of `test-data/proteins.fasta`.

use std::fs;

use super::test_data;

/// The residues of ESM-2's vocabulary in the order of their token ids, of which L has 4.
const RESIDUES: &[u8] = b"LAGVSERTIDPKQNFYMHWCXBUZO";

/// A protein as tokens.
pub struct Protein {
    pub accession: String,
    /// `<cls> residues <eos>`.
    pub tokens: Vec<u8>,
}

/// All of them, in the order of the file.
pub fn proteins() -> Vec<Protein> {
    let text = fs::read_to_string(test_data("proteins.fasta")).unwrap();
    text.split('>').skip(1).map(parse).collect()
}

/// The one with this accession.
pub fn protein(accession: &str) -> Protein {
    proteins()
        .into_iter()
        .find(|protein| protein.accession == accession)
        .unwrap_or_else(|| panic!("{accession} is not among the test proteins"))
}

/// A record whose header begins `tr|ACCESSION|NAME`.
fn parse(record: &str) -> Protein {
    let (header, lines) = record.split_once('\n').unwrap();
    let residues = lines
        .bytes()
        .filter(u8::is_ascii_alphabetic)
        .map(|residue| {
            let index = RESIDUES.iter().position(|known| *known == residue).unwrap();
            index as u8 + 4
        });
    Protein {
        accession: header.split('|').nth(1).unwrap().to_owned(),
        tokens: [0].into_iter().chain(residues).chain([2]).collect(),
    }
}
