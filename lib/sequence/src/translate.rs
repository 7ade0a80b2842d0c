//! Translates contigs.
//!
//! [`Translator`] turns the bases of a contig into peptides. Nothing here does I/O.

mod bases;
mod codon_table;
mod genetic_code;

use std::fmt;
use std::ops::Range;

use serde::Serialize;
use strum::{Display, EnumMessage, VariantArray};

use crate::residue::ResidueChanges;

pub(crate) use bases::to_sets;
use codon_table::{Entries, START, STOP, codon_entries, index};
pub use genetic_code::{STANDARD_CODE, genetic_code};

/// How contigs become peptides: those of a frame, and the number of the genetic code in NCBI's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "translate", rename_all = "kebab-case")]
pub enum Translation {
    /// The frame, translated.
    SixFrame {
        /// What to do at stop codons.
        stops: StopPolicy,
        genetic_code: u8,
    },
    /// Its open reading frames.
    Orf {
        /// What limits them.
        orf_between: OrfBetween,
        genetic_code: u8,
    },
}

/// The policy for stop codons inside a frame. The stop codon that ends a frame is left out in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumMessage, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StopPolicy {
    /// Split the frame into peptides
    Split,
    /// Leave out the frame
    Drop,
    /// Translate them as X, the unknown residue
    X,
}

/// What limits an open reading frame. The ends of a contig limit it in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumMessage, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum OrfBetween {
    /// Stop codons
    Stops,
    /// The first start codon after a stop codon, which becomes M, and the next stop codon
    StartStop,
}

/// Translates contigs.
#[derive(Debug)]
pub struct Translator {
    translation: Translation,
    /// What codons code for on the strand of the contig, and on the other one.
    forward: Entries,
    reverse: Entries,
    min_residues: usize,
}

/// The reading frames, in the order of the output: 1, 2 or 3 begins at that base. −1, −2 and −3 are the same codons on the other
/// strand, read from the last one on. So does EMBOSS `transeq` number them, in its default.
const FRAMES: [i8; 6] = [1, 2, 3, -1, -2, -3];

/// The offset of the leftmost codon of a frame in the contig.
fn offset(frame: i8) -> usize {
    usize::from(frame.unsigned_abs()) - 1
}

/// The place of a peptide on its contig. Its text is the end of the peptide's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeptidePlace {
    pub(crate) frame: i8,
    /// The leftmost base, counted from 1 on the strand of the contig in every frame.
    pub(crate) start: u32,
    /// The rightmost base.
    pub(crate) end: u32,
}

impl PeptidePlace {
    /// Makes the place of codons `read` of the `codons` of a frame, counted from 0 as they are read.
    fn new(frame: i8, read: Range<usize>, codons: usize) -> Self {
        let Range { start, end } = if frame > 0 {
            read
        } else {
            codons - read.end..codons - read.start
        };
        let base = |codon: usize| (offset(frame) + 3 * codon) as u32;
        Self {
            frame,
            start: base(start) + 1,
            end: base(end),
        }
    }
}

impl fmt::Display for PeptidePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.frame, self.start, self.end)
    }
}

/// The peptides of a contig, in the order of the frames, and in a frame as they are read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// The characters that were replaced by N.
    pub(crate) replaced: u64,
    /// Peptides that are shorter than the minimum, and left out.
    pub(crate) short: u64,
    peptides: Vec<(PeptidePlace, Range<usize>)>,
    /// The residues of all peptides.
    residues: Vec<u8>,
}

impl Translator {
    /// Makes a translator that leaves out peptides with fewer than `min_residues` residues.
    pub fn new(translation: Translation, min_residues: u32) -> Self {
        let (Translation::SixFrame { genetic_code, .. } | Translation::Orf { genetic_code, .. }) =
            translation;
        let [forward, reverse] = codon_entries(genetic_code);
        Self {
            translation,
            forward,
            reverse,
            min_residues: min_residues as usize,
        }
    }

    /// Translates a contig, given as [sets of bases](to_sets), in all six frames. A codon that is not whole is left out.
    pub(crate) fn translate(&self, bases: &[u8], changes: ResidueChanges) -> Translated {
        let mut translated = Translated {
            replaced: changes.replaced,
            ..Translated::default()
        };
        for frame in FRAMES {
            let bases = bases.get(offset(frame)..).unwrap_or_default();
            let codons = bases.chunks_exact(3);
            if frame > 0 {
                let entries = codons.map(|codon| self.forward[index(codon)]);
                self.read(frame, entries, &mut translated);
            } else {
                let entries = codons.rev().map(|codon| self.reverse[index(codon)]);
                self.read(frame, entries, &mut translated);
            }
        }
        translated
    }

    /// Adds the peptides of a frame, whose codons have these `entries` as they are read.
    fn read(
        &self,
        frame: i8,
        entries: impl ExactSizeIterator<Item = u8>,
        translated: &mut Translated,
    ) {
        let codons = entries.len();
        let needs_start = matches!(
            self.translation,
            Translation::Orf {
                orf_between: OrfBetween::StartStop,
                ..
            }
        );
        // The first codon of the peptide that is being read.
        let mut first = (!needs_start).then_some(0);
        for (at, entry) in entries.enumerate() {
            let residue = entry & !START;
            if residue == STOP {
                match self.translation {
                    Translation::SixFrame {
                        stops: StopPolicy::Drop,
                        ..
                    } if at + 1 < codons => {
                        return translated.discard();
                    }
                    Translation::SixFrame {
                        stops: StopPolicy::X,
                        ..
                    } if at + 1 < codons => {
                        translated.residues.push(b'X');
                        continue;
                    }
                    _ => {}
                }
                if let Some(first) = first {
                    let place = PeptidePlace::new(frame, first..at, codons);
                    translated.end(place, self.min_residues);
                }
                first = (!needs_start).then_some(at + 1);
            } else if first.is_some() {
                translated.residues.push(residue);
            } else if entry & START != 0 {
                first = Some(at);
                translated.residues.push(b'M');
            }
        }
        if let Some(first) = first {
            let place = PeptidePlace::new(frame, first..codons, codons);
            translated.end(place, self.min_residues);
        }
    }
}

impl Translated {
    /// Returns the number of peptides.
    pub(crate) fn len(&self) -> usize {
        self.peptides.len()
    }

    /// Iterates over the peptides and their residues.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeptidePlace, &[u8])> {
        let peptides = self.peptides.iter();
        peptides.map(|(place, residues)| (*place, &self.residues[residues.clone()]))
    }

    /// Ends the peptide of the last residues.
    fn end(&mut self, place: PeptidePlace, min_residues: usize) {
        let start = self.start();
        let end = self.residues.len();
        if end - start >= min_residues {
            self.peptides.push((place, start..end));
        } else {
            self.short += u64::from(end > start);
            self.discard();
        }
    }

    /// Removes the residues of a peptide that has not ended.
    fn discard(&mut self) {
        self.residues.truncate(self.start());
    }

    /// Returns where the residues of the last peptide begin.
    fn start(&self) -> usize {
        self.peptides.last().map_or(0, |(_, residues)| residues.end)
    }
}

#[cfg(test)]
mod tests;
