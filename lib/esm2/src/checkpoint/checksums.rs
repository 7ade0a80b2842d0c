//! The CRC-32 that the archives of PyTorch have of their records, compared with the bytes.

use std::ops::Range;
use std::sync::OnceLock;

use crc32fast::Hasher;

use super::CheckpointError;
use super::digest::PIECE;
use super::folder::WeightFile;
use super::torch_file::{Record, TorchFileError};

/// The records of all files, in chunks that are summed up in any order.
pub(super) struct Checksums<'a> {
    records: Vec<(&'a WeightFile, &'a str, Record<'a>)>,
    chunks: Vec<Chunk>,
}

/// Some bytes of a record.
struct Chunk {
    record: usize,
    bytes: Range<usize>,
    crc: OnceLock<u32>,
}

impl<'a> Checksums<'a> {
    /// Those of `files`. What says that it has none is taken as it is.
    pub(super) fn collect(files: &'a [WeightFile]) -> Result<Self, CheckpointError> {
        let mut records = Vec::new();
        for file in files {
            let all = file.records()?.into_iter();
            let summed = all.filter(|(_, record)| record.crc != 0);
            records.extend(summed.map(|(name, record)| (file, name, record)));
        }
        let chunks = records.iter().enumerate();
        let chunks = chunks.flat_map(|(record, (_, _, Record { bytes, .. }))| {
            let (all, step) = (bytes.len(), PIECE as usize);
            (0..all).step_by(step).map(move |begin| Chunk {
                record,
                bytes: begin..all.min(begin + step),
                crc: OnceLock::new(),
            })
        });
        Ok(Self {
            chunks: chunks.collect(),
            records,
        })
    }

    /// The bytes of every chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &'a [u8]> {
        self.chunks.iter().map(|chunk| self.bytes(chunk))
    }

    fn bytes(&self, chunk: &Chunk) -> &'a [u8] {
        &self.records[chunk.record].2.bytes[chunk.bytes.clone()]
    }

    /// Sums up a chunk.
    pub(super) fn sum(&self, chunk: usize) {
        let chunk = &self.chunks[chunk];
        chunk.crc.get_or_init(|| crc32fast::hash(self.bytes(chunk)));
    }

    /// Compares all records, those that are not summed up yet as well.
    pub(super) fn verify(&self) -> Result<(), CheckpointError> {
        let mut sums = vec![Hasher::new(); self.records.len()];
        for (number, chunk) in self.chunks.iter().enumerate() {
            self.sum(number);
            let crc = chunk.crc.get().copied().unwrap_or_default();
            let next = Hasher::new_with_initial_len(crc, chunk.bytes.len() as u64);
            sums[chunk.record].combine(&next);
        }
        for ((file, name, record), sum) in self.records.iter().zip(sums) {
            let found = sum.finalize();
            if found != record.crc {
                return Err(CheckpointError::TorchFile {
                    path: file.path.clone(),
                    source: TorchFileError::Checksum {
                        record: (*name).to_owned(),
                        expected: record.crc,
                        found,
                    },
                });
            }
        }
        Ok(())
    }
}
