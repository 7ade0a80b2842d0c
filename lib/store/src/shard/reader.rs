//! A shard that is not held in memory.

use std::collections::VecDeque;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use plmkit_contract::{DESCRIPTION, Labels, Provenance, RowDigest, ordinals};

use super::{MOST_HEADER_BYTES, ShardRows, open, pack, too_long_headers};
use crate::StoreError;
use crate::parquet::ParquetReader;

/// Reads the lengths of all rows of a shard, and its rows batch by batch.
///
/// It keeps decoded rows from the first that was not asked for to the last that was. Every read is verified by the same
/// checksums: a file that changes meanwhile is an error.
pub struct ShardReader {
    reader: ParquetReader<()>,
    /// Decoded record batches, in file order.
    held: VecDeque<Held>,
    /// The number of the row after them.
    end: usize,
    /// The bytes of their ids and descriptions.
    header_bytes: usize,
}

/// The length of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLength {
    /// Its ordinal, which the windows of a protein share.
    pub ordinal: u64,
    /// Residues of the whole protein.
    pub length: u32,
    /// Residues of the row.
    pub residues: u32,
}

/// A decoded record batch.
struct Held {
    batch: RecordBatch,
    /// The number of its first row.
    first: usize,
    /// Its rows that were not asked for.
    unused: usize,
}

impl ShardReader {
    /// Opens a shard and verifies its end.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            reader: open(path)?,
            held: VecDeque::new(),
            end: 0,
            header_bytes: 0,
        })
    }

    /// Calls `add` for each row, in file order, and verifies the whole file.
    pub fn lengths(&mut self, mut add: impl FnMut(RowLength)) -> Result<(), StoreError> {
        self.reader
            .rewind(Some(&["ordinal", "sequence", "length"]))?;
        while let Some(batch) = self.reader.next_batch()? {
            let ordinals = ordinals(&batch).iter();
            let lengths = batch["length"].as_primitive::<UInt32Type>().values();
            let residues = batch["sequence"].as_string::<i32>().offsets().lengths();
            for ((&ordinal, &length), residues) in ordinals.zip(lengths).zip(residues) {
                add(RowLength {
                    ordinal,
                    length,
                    residues: residues as u32,
                });
            }
        }
        (self.held, self.end, self.header_bytes) = (VecDeque::new(), 0, 0);
        self.reader.rewind(None)
    }

    /// Returns the provenance of the shard.
    pub fn provenance(&self) -> &Provenance {
        self.reader.provenance()
    }

    /// Returns the digest of all rows, with their number.
    pub fn digest(&self) -> RowDigest {
        self.reader.digest()
    }

    /// Makes the record batch of a batch of rows, given their numbers. The offsets of `tokens` are `cu_seqlens`, its values the
    /// packed token ids.
    ///
    /// # Panics
    /// If there is no such row, or if it was asked for before.
    pub fn pack(&mut self, rows: &[u32], labels: Labels) -> Result<RecordBatch, StoreError> {
        let last = rows.iter().max().map_or(0, |&row| row as usize);
        while self.end <= last {
            let batch = self.reader.next_batch()?.expect("a row of the shard");
            let batch = if labels.description {
                batch
            } else {
                without_descriptions(&batch)
            };
            self.header_bytes += header_bytes(&batch);
            if self.header_bytes > MOST_HEADER_BYTES {
                return Err(too_long_headers(self.reader.path()));
            }
            self.held.push_back(Held {
                first: self.end,
                unused: batch.num_rows(),
                batch,
            });
            self.end = self.held.back().map_or(0, |held| held.first + held.unused);
        }
        let first = self.held.front().map_or(0, |held| held.first);
        let held = ShardRows::new(first, self.held.iter().map(|held| &held.batch));
        let packed = rows.iter().map(|&row| held.get(row as usize));
        let (provenance, path) = (self.reader.provenance(), self.reader.path());
        let packed = pack(packed, labels, provenance, path)?;
        for &row in rows {
            let after = self.held.partition_point(|held| held.first <= row as usize);
            self.held[after - 1].unused -= 1;
        }
        while let Some(held) = self.held.pop_front_if(|held| held.unused == 0) {
            self.header_bytes -= header_bytes(&held.batch);
        }
        Ok(packed)
    }

    /// Returns the number of decoded rows in memory.
    #[cfg(test)]
    pub(super) fn held_rows(&self) -> usize {
        self.held.iter().map(|held| held.batch.num_rows()).sum()
    }
}

/// Returns the bytes of the ids and descriptions of a record batch.
fn header_bytes(batch: &RecordBatch) -> usize {
    let bytes = |column| batch[column].as_string::<i32>().value_data().len();
    bytes("id") + bytes(DESCRIPTION)
}

/// Returns a record batch of a shard with nulls for its descriptions. They may be much longer than the sequences.
fn without_descriptions(batch: &RecordBatch) -> RecordBatch {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| match field.name().as_str() {
        DESCRIPTION => new_null_array(field.data_type(), batch.num_rows()),
        _ => ArrayRef::clone(column),
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).expect("the same columns")
}
