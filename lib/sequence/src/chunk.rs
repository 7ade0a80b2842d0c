//! Chunks of records, which are prepared together.

use plmkit_contract::{InputSummary, UnknownResidue};

use crate::error::ShardError;
use crate::fasta::FastaReader;
use crate::input::Input;
use crate::nucleic_acids::NucleicAcidCheck;
use crate::prepare::{Policy, Prepared};
use crate::records::Records;

/// A chunk ends with the record in which it reaches this many bytes.
const BYTES: usize = 1 << 19;

/// A chunk also ends after this many records, which may be short.
const RECORDS: usize = 1 << 12;

/// Reads an input in chunks.
pub(crate) struct ChunkReader {
    input: Input,
    reader: FastaReader,
    /// `None` if any alphabet is allowed.
    alphabet: Option<NucleicAcidCheck>,
    ended: bool,
    error: Option<ShardError>,
}

impl ChunkReader {
    pub(crate) fn new(input: &Input, reader: FastaReader, any_alphabet: bool) -> Self {
        Self {
            input: input.clone(),
            reader,
            alphabet: (!any_alphabet).then(NucleicAcidCheck::default),
            ended: false,
            error: None,
        }
    }

    /// Reads the next chunk. Returns no records after the last, or at an error.
    pub(crate) fn read(&mut self) -> Records {
        let mut records = Records::default();
        records.reserve(BYTES + BYTES / 4);
        while !self.ended && records.bytes() < BYTES && records.len() < RECORDS {
            let read = self.read_record(&mut records);
            self.ended = !matches!(read, Ok(true));
            self.error = read.err();
        }
        records
    }

    fn read_record(&mut self, records: &mut Records) -> Result<bool, ShardError> {
        let more = self.reader.read(records)?;
        let Some(alphabet) = &mut self.alphabet else {
            return Ok(more);
        };
        let nucleic = if more {
            let known = alphabet.add(records.last().sequence);
            if known {
                records.pop();
            }
            known
        } else {
            alphabet.is_nucleic()
        };
        if nucleic {
            return Err(ShardError::NucleicAcids(self.input.clone()));
        }
        Ok(more)
    }

    /// Returns the error that ended the input before its end.
    pub(crate) fn failed(&mut self) -> Option<ShardError> {
        self.error.take()
    }

    pub(crate) fn into_reader(self) -> FastaReader {
        self.reader
    }

    /// Returns how many descriptions so far had bytes that were not UTF-8.
    pub(crate) fn descriptions_recoded(&self) -> u64 {
        self.reader.descriptions_recoded()
    }

    /// Reads the rest of the input, and returns its digest and counts.
    pub(crate) fn finish(self) -> Result<InputSummary, ShardError> {
        self.reader.finish()
    }
}

/// The records of a chunk after the policy.
pub(crate) struct PreparedChunk {
    pub(crate) records: Records,
    /// What becomes of each.
    pub(crate) prepared: Vec<Result<Prepared, UnknownResidue>>,
}

/// Applies the policy to the records of a chunk.
pub(crate) fn prepare(policy: &Policy, mut records: Records) -> PreparedChunk {
    let prepared = (0..records.len()).map(|i| {
        let has_id = !records.get(i).id.is_empty();
        policy.prepare(has_id, records.sequence_mut(i))
    });
    PreparedChunk {
        prepared: prepared.collect(),
        records,
    }
}
