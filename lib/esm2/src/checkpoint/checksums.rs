//! Compares the records of PyTorch files with the CRC-32 in their archives.

use std::ops::Range;
use std::sync::OnceLock;

use crc32fast::Hasher;
use plmkit_contract::Quoted;

use super::CheckpointError;
use super::digest::PIECE;
use super::torch_file::Record;
use super::weight_file::WeightFile;

/// The records of all files that have a checksum, cut into chunks that can be summed in any order.
pub(super) struct Checksums<'a> {
    records: Vec<(&'a WeightFile, String, Record<'a>)>,
    chunks: Vec<Chunk>,
}

/// A part of a record.
struct Chunk {
    /// The index of the record.
    record: usize,
    range: Range<usize>,
    crc: OnceLock<u32>,
}

impl<'a> Checksums<'a> {
    pub(super) fn collect(files: &'a [WeightFile]) -> Result<Self, CheckpointError> {
        let (mut records, mut chunks) = (Vec::new(), Vec::new());
        for file in files {
            for (name, record) in file.records()? {
                if record.crc == 0 {
                    continue;
                }
                let (length, step) = (record.bytes.len(), PIECE as usize);
                chunks.extend((0..length).step_by(step).map(|begin| Chunk {
                    record: records.len(),
                    range: begin..length.min(begin + step),
                    crc: OnceLock::new(),
                }));
                records.push((file, name, record));
            }
        }
        Ok(Self { records, chunks })
    }

    /// Returns the bytes of every chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &'a [u8]> {
        self.chunks.iter().map(|chunk| self.bytes(chunk))
    }

    fn bytes(&self, chunk: &Chunk) -> &'a [u8] {
        &self.records[chunk.record].2.bytes[chunk.range.clone()]
    }

    /// Returns the CRC-32 of a chunk, computed on the first call.
    pub(super) fn sum(&self, chunk: usize) -> u32 {
        let chunk = &self.chunks[chunk];
        *chunk.crc.get_or_init(|| crc32fast::hash(self.bytes(chunk)))
    }

    /// Checks all records. Sums the chunks that no task has summed.
    pub(super) fn verify(&self) -> Result<(), CheckpointError> {
        let mut sums = vec![Hasher::new(); self.records.len()];
        for (number, chunk) in self.chunks.iter().enumerate() {
            let next = Hasher::new_with_initial_len(self.sum(number), chunk.range.len() as u64);
            sums[chunk.record].combine(&next);
        }
        for ((file, name, record), sum) in self.records.iter().zip(sums) {
            let (expected, found) = (record.crc, sum.finalize());
            if found != expected {
                let record = Quoted(name);
                let reason = format!(
                    "damaged: record {record} has CRC-32 {found:08x}, expected {expected:08x}"
                );
                return Err(CheckpointError::invalid(&file.path, reason));
            }
        }
        Ok(())
    }
}
