//! Chunks of records, which are read and prepared together.

use plmkit_contract::{SequenceDigest, UnknownResidue};

use crate::block::{Block, RecordError};
use crate::duplicate::fingerprint;
use crate::error::ShardError;
use crate::fasta::FastaReader;
use crate::nucleic_acids::{Alphabet, alphabet};
use crate::prepare::{Outcome, Policy, Prepared};
use crate::records::Records;
use crate::translate::Translator;

/// Reads an input in chunks that are not parsed yet.
pub(crate) struct ChunkReader {
    reader: FastaReader,
    ended: bool,
    error: Option<ShardError>,
}

impl ChunkReader {
    pub(crate) fn new(reader: FastaReader) -> Self {
        Self {
            reader,
            ended: false,
            error: None,
        }
    }

    /// Reads the next chunk. Returns `None` after the last, or at an error.
    pub(crate) fn read(&mut self) -> Option<Block> {
        if self.ended {
            return None;
        }
        let block = self.reader.read_block();
        self.ended = !matches!(block, Ok(Some(_)));
        block.unwrap_or_else(|error| {
            self.error = Some(error);
            None
        })
    }

    /// Returns the error that ended the input before its end.
    pub(crate) fn failed(&mut self) -> Option<ShardError> {
        self.error.take()
    }

    pub(crate) fn into_reader(self) -> FastaReader {
        self.reader
    }
}

/// The records of a chunk after the policy.
pub(crate) struct PreparedChunk {
    pub(crate) records: Records,
    /// What becomes of each.
    pub(crate) prepared: Vec<Result<Outcome, UnknownResidue>>,
    /// The fingerprint of each id.
    pub(crate) names: Vec<u128>,
    /// The alphabet of each, if it was asked for.
    pub(crate) alphabets: Vec<Alphabet>,
    /// How many descriptions had bytes that were not UTF-8.
    pub(crate) descriptions_recoded: u64,
    /// How many descriptions were cut.
    pub(crate) descriptions_cut: u64,
    /// Why the record after these is invalid.
    pub(crate) error: Option<RecordError>,
}

/// Parses a chunk and applies the policy to its records, or translates them. Computes alphabets and identities if they are
/// asked for.
pub(crate) fn prepare(
    policy: &Policy,
    translator: Option<&Translator>,
    block: Block,
    with_alphabets: bool,
    identify: bool,
) -> PreparedChunk {
    let parsed = block.parse();
    let mut records = parsed.records;
    let alphabets = records.iter().filter(|_| with_alphabets);
    let alphabets = alphabets.map(|record| alphabet(record.sequence)).collect();
    let names = records
        .iter()
        .map(|record| fingerprint(record.id))
        .collect();
    let prepared = (0..records.len()).map(|i| {
        let has_id = !records.get(i).id.is_empty();
        let sequence = records.sequence_mut(i);
        match translator {
            None => policy.prepare(has_id, sequence).map(Outcome::Whole),
            Some(translator) => policy.translate(translator, has_id, sequence),
        }
    });
    let mut prepared: Vec<_> = prepared.collect();
    if identify {
        self::identify(&records, &mut prepared);
    }
    PreparedChunk {
        prepared,
        records,
        names,
        alphabets,
        descriptions_recoded: parsed.descriptions_recoded,
        descriptions_cut: parsed.descriptions_cut,
        error: parsed.error,
    }
}

/// Computes the digests of accepted records and of peptides.
fn identify(records: &Records, prepared: &mut [Result<Outcome, UnknownResidue>]) {
    let mut accepted = Vec::new();
    let mut sequences = Vec::new();
    for (prepared, record) in prepared.iter_mut().zip(records.iter()) {
        match prepared {
            Ok(Outcome::Whole(Prepared::Accepted(found))) => {
                sequences.push(&record.sequence[..found.length as usize]);
                accepted.push(found);
            }
            Ok(Outcome::Translated(translated)) => translated.identify(),
            _ => {}
        }
    }
    let digests = SequenceDigest::of_all(&sequences);
    for ((accepted, whole), sequence) in accepted.into_iter().zip(digests).zip(sequences) {
        *accepted = accepted.identified(whole, sequence);
    }
}
