//! Chunks of records, which are parsed and prepared together.

use plmkit_contract::{SequenceDigest, UnknownResidue};

use crate::block::{FastaBlock, Parsed};
use crate::duplicate::fingerprint_of;
use crate::nucleic_acids::is_nucleic;
use crate::policy::{Outcome, Policy};
use crate::translate::Translator;

/// The records of a chunk after the policy, normalised.
pub(crate) struct PreparedChunk {
    pub(crate) parsed: Parsed,
    /// What becomes of each.
    pub(crate) outcomes: Vec<Result<Outcome, UnknownResidue>>,
    /// The fingerprint of each id.
    pub(crate) fingerprints: Vec<u128>,
    /// Whether each [looks like](is_nucleic) nucleic acids, if it was asked for.
    pub(crate) alphabets: Vec<Option<bool>>,
    /// The digest of each accepted record and of each peptide, if it was asked for.
    pub(crate) digests: Vec<SequenceDigest>,
}

/// Parses a chunk and applies the policy to its records, or translates them. Computes alphabets and digests if they are asked for.
pub(crate) fn prepare(
    policy: &Policy,
    translator: Option<&Translator>,
    block: FastaBlock,
    with_alphabets: bool,
    with_digests: bool,
) -> PreparedChunk {
    let mut parsed = block.parse();
    let records = &mut parsed.records;
    let alphabets = records.iter().filter(|_| with_alphabets);
    let alphabets = alphabets
        .map(|record| is_nucleic(record.sequence))
        .collect();
    let fingerprints = records.iter().map(|record| fingerprint_of(record.id));
    let fingerprints = fingerprints.collect();
    let outcomes = (0..records.len()).map(|i| {
        let has_id = !records.get(i).id.is_empty();
        let (length, outcome) = policy.prepare(translator, has_id, records.sequence_mut(i));
        records.shorten(i, length);
        outcome
    });
    let outcomes: Vec<_> = outcomes.collect();
    let mut sequences = Vec::new();
    for (record, outcome) in records.iter().zip(&outcomes).filter(|_| with_digests) {
        match outcome {
            Ok(Outcome::Accepted(_)) => sequences.push(record.sequence),
            Ok(Outcome::Translated(translated)) => {
                sequences.extend(translated.iter().map(|(_, residues)| residues));
            }
            _ => {}
        }
    }
    PreparedChunk {
        digests: SequenceDigest::of_all(&sequences),
        outcomes,
        fingerprints,
        alphabets,
        parsed,
    }
}
