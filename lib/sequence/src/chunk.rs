//! Chunks of records, which are parsed and prepared together.

use plmkit_contract::{SequenceDigest, UnknownResidue};

use crate::block::{FastaBlock, Parsed};
use crate::duplicate::fingerprint_of;
use crate::nucleic_acids::is_nucleic;
use crate::policy::{Outcome, Policy};
use crate::translate::Translator;

/// What is known of a record before it is added to the set.
pub(crate) struct Prepared {
    pub(crate) outcome: Result<Outcome, UnknownResidue>,
    /// The fingerprint of the id.
    pub(crate) fingerprint: u128,
    /// Whether it [looks like](is_nucleic) nucleic acids, if that was asked for.
    pub(crate) is_nucleic: Option<bool>,
    /// The digests of its residues or of its peptides, if they were asked for.
    pub(crate) digests: Vec<SequenceDigest>,
}

/// Parses a chunk and applies the policy to its records, which are then normalised, or translates them. Computes alphabets and digests
/// if they are asked for.
pub(crate) fn prepare(
    policy: &Policy,
    translator: Option<&Translator>,
    block: FastaBlock,
    with_alphabets: bool,
    with_digests: bool,
) -> (Parsed, Vec<Prepared>) {
    let mut parsed = block.parse();
    let records = &mut parsed.records;
    let prepared = (0..records.len()).map(|i| {
        let record = records.get(i);
        let fingerprint = fingerprint_of(record.id);
        let has_id = !record.id.is_empty();
        let is_nucleic = with_alphabets.then(|| is_nucleic(record.sequence));
        let (length, outcome) = policy.prepare(translator, has_id, records.sequence_mut(i));
        records.shorten(i, length);
        Prepared {
            outcome,
            fingerprint,
            is_nucleic: is_nucleic.flatten(),
            digests: Vec::new(),
        }
    });
    let mut prepared: Vec<Prepared> = prepared.collect();
    if with_digests {
        let (mut sequences, mut counts) = (Vec::new(), Vec::new());
        for (record, prepared) in records.iter().zip(&prepared) {
            let before = sequences.len();
            match &prepared.outcome {
                Ok(Outcome::Accepted(_)) => sequences.push(record.sequence),
                Ok(Outcome::Translated(translated)) => {
                    sequences.extend(translated.iter().map(|(_, residues)| residues));
                }
                _ => {}
            }
            counts.push(sequences.len() - before);
        }
        // Many at once are faster.
        let mut digests = SequenceDigest::of_all(&sequences).into_iter();
        for (prepared, count) in prepared.iter_mut().zip(counts) {
            prepared.digests = digests.by_ref().take(count).collect();
        }
    }
    (parsed, prepared)
}
