//! A shard that is not held in memory.

use std::collections::VecDeque;
use std::ops::Range;
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
    /// Decoded record batches, in file order, each with the number of its rows that were not asked for.
    held: VecDeque<(RecordBatch, usize)>,
    /// The numbers of their rows.
    rows: Range<usize>,
}

impl ShardReader {
    /// Opens a shard and verifies its end.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            reader: open(path)?,
            held: VecDeque::new(),
            rows: 0..0,
        })
    }

    /// Calls `add` for each row, in file order, and verifies the whole file. It gets the ordinal, which the windows of a protein share,
    /// the residues of the whole protein, and those of the row.
    pub fn lengths(&mut self, mut add: impl FnMut(u64, u32, u32)) -> Result<(), StoreError> {
        self.reader
            .rewind(Some(&["ordinal", "sequence", "length"]))?;
        let mut rows = 0;
        while let Some(batch) = self.reader.next_batch()? {
            rows += batch.num_rows() as u64;
            let ordinals = ordinals(&batch).iter();
            let lengths = batch["length"].as_primitive::<UInt32Type>().values();
            let residues = batch["sequence"].as_string::<i32>().offsets().lengths();
            for ((&ordinal, &length), residues) in ordinals.zip(lengths).zip(residues) {
                add(ordinal, length, residues as u32);
            }
        }
        let expected = self.digest().rows();
        if rows != expected {
            let what = format!("expected {expected} rows, as its metadata say, found {rows}");
            return Err(StoreError::malformed(self.reader.path(), what));
        }
        (self.held, self.rows) = (VecDeque::new(), 0..0);
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
        while self.rows.end <= last {
            let batch = self.reader.next_batch()?.expect("a row of the shard");
            let batch = if labels.description {
                batch
            } else {
                without_descriptions(&batch)
            };
            let unused = batch.num_rows();
            self.rows.end += unused;
            self.held.push_back((batch, unused));
            // After the last row, the digest of all is verified.
            if self.rows.end as u64 == self.digest().rows() {
                self.reader.next_batch()?;
            }
            let headers = self.held.iter().map(|(batch, _)| header_bytes(batch));
            if headers.sum::<usize>() > MOST_HEADER_BYTES {
                return Err(too_long_headers(self.reader.path()));
            }
        }
        let held = ShardRows::new(self.rows.start, self.held.iter().map(|(batch, _)| batch));
        let packed = rows.iter().map(|&row| held.get(row as usize));
        let (provenance, path) = (self.reader.provenance(), self.reader.path());
        let packed = pack(packed, labels, provenance, path)?;
        for &row in rows {
            let mut end = self.rows.start;
            let mut held = self.held.iter_mut();
            let own = held.find(|(batch, _)| {
                end += batch.num_rows();
                (row as usize) < end
            });
            own.expect("a held row").1 -= 1;
        }
        let is_used = |(_, unused): &mut (RecordBatch, usize)| *unused == 0;
        while let Some((batch, _)) = self.held.pop_front_if(is_used) {
            self.rows.start += batch.num_rows();
        }
        Ok(packed)
    }

    /// Returns the number of decoded rows in memory.
    #[cfg(test)]
    pub(super) fn held_rows(&self) -> usize {
        self.held.iter().map(|(batch, _)| batch.num_rows()).sum()
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
