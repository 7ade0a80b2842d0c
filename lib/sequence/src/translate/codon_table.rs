//! The residues of codons.

use super::bases::complement;
use super::genetic_code::codons;

/// The bit of an entry whose codon may start a protein. Residues are ASCII.
pub(super) const START: u8 = 0x80;

/// The residue of a stop codon.
pub(super) const STOP: u8 = b'*';

/// The entry of each codon, by its [`index`].
pub(super) type Entries = Box<[u8; 1 << 12]>;

/// Returns what each codon codes for, as it is read on its own strand and on the other one.
///
/// A codon is three [sets of bases](super::bases::to_sets). Its residue is X unless all codons of the sets have the same one. Its
/// entry has the bit [`START`] if it is a single codon that may start a protein.
pub(super) fn codon_entries(code: u8) -> [Entries; 2] {
    let [mut forward, mut reverse] = [(); 2].map(|()| Box::new([b'X'; 1 << 12]));
    let (residues, starts) = codons(code);
    for codon in 0..1usize << 12 {
        let sets = [codon >> 8, codon >> 4, codon].map(|set| set as u8 & 15);
        let entry = entry(residues, starts, sets);
        forward[codon] = entry;
        let [first, second, third] = sets.map(complement);
        reverse[index(&[third, second, first])] = entry;
    }
    [forward, reverse]
}

/// Returns the place of a codon among the entries.
pub(super) fn index(codon: &[u8]) -> usize {
    let [first, second, third] = [codon[0], codon[1], codon[2]].map(usize::from);
    (first << 8 | second << 4 | third) & ((1 << 12) - 1)
}

/// Returns the entry of a codon by the residues and the starts of all codons.
fn entry(residues: &[u8], starts: &[u8], sets: [u8; 3]) -> u8 {
    let has = |set: u8, base: usize| set >> (base % 4) & 1 == 1;
    let [first, second, third] = sets;
    let mut codons =
        (0..64).filter(|&at| has(first, at / 16) && has(second, at / 4) && has(third, at));
    let Some(codon) = codons.next() else {
        return b'X';
    };
    let residue = residues[codon];
    match codons.next() {
        None if starts[codon] == b'M' => residue | START,
        Some(second) if residues[second] != residue => b'X',
        _ if codons.all(|other| residues[other] == residue) => residue,
        _ => b'X',
    }
}
