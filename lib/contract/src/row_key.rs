//! Rows and the columns that identify them, in shards, batches and embeddings files.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder, UInt32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};

use crate::SequenceDigest;

/// The names of the key columns: the first columns of every batches and embeddings file, in this order.
pub const KEY_COLUMNS: [&str; 6] = [
    "ordinal",
    "id",
    "start",
    "length",
    "truncated",
    "sequence_digest",
];

/// The column of an embeddings file with the number of windows of each row's protein. It follows the key.
pub const N_WINDOWS: &str = "n_windows";

/// The fields of [`KEY_COLUMNS`], with their types.
pub(crate) fn key_fields() -> [Field; KEY_COLUMNS.len()] {
    KEY_COLUMNS.map(|name| {
        let data_type = match name {
            "ordinal" => DataType::Int64,
            "start" | "length" => DataType::UInt32,
            "truncated" => DataType::Boolean,
            _ => DataType::Utf8,
        };
        Field::new(name, data_type, false)
    })
}

/// The key of a row, which is a protein or one window of it. The fields are [`KEY_COLUMNS`] and [`N_WINDOWS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey<'a> {
    /// 0-based position of the record in the whole input, rejected records included. `(ordinal, start)` is unique.
    pub ordinal: u64,
    /// The record's id: the first word of the FASTA header, renamed if the duplicate-id policy says so.
    pub id: &'a str,
    /// 0-based offset of the row's first residue in the protein, in residues.
    pub start: u32,
    /// Residues of the whole protein.
    pub length: u32,
    /// Whether some residues of the protein are in no row.
    pub truncated: bool,
    /// Digest of the row's residues.
    pub digest: SequenceDigest,
    /// The number of windows that were stitched into this row; 1 for any other row.
    pub n_windows: u32,
}

impl RowKey<'_> {
    /// Ordinal and start: unique in a set of shards, whose rows are in this order.
    pub fn sort_key(&self) -> (u64, u32) {
        (self.ordinal, self.start)
    }
}

/// A row of a shard: a protein, or one window of it. The fields are the columns of
/// [`shard_schema`](crate::shard_schema).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow<'a> {
    /// The key columns.
    pub key: RowKey<'a>,
    /// The rest of the FASTA header.
    pub description: Option<&'a str>,
    /// The residues to embed, upper case.
    pub sequence: &'a str,
}

/// The key columns of a record batch.
#[derive(Debug)]
pub struct KeyColumns<'a> {
    ordinals: &'a [u64],
    ids: &'a StringArray,
    /// Absent from lists of records, whose rows are whole.
    starts: Option<&'a [u32]>,
    lengths: &'a [u32],
    truncated: &'a BooleanArray,
    digests: &'a StringArray,
    /// Present only in embeddings of stitched proteins.
    n_windows: Option<&'a [u32]>,
}

impl<'a> KeyColumns<'a> {
    /// Takes the key columns of a batch of a verified file. Rows of a file without `start` begin at 0.
    ///
    /// # Panics
    /// If the batch lacks another key column.
    pub fn new(batch: &'a RecordBatch) -> Self {
        let numbers = |column: &'a ArrayRef| &column.as_primitive::<UInt32Type>().values()[..];
        Self {
            ordinals: ordinals(batch),
            ids: batch["id"].as_string(),
            starts: batch.column_by_name("start").map(numbers),
            lengths: numbers(&batch["length"]),
            truncated: batch["truncated"].as_boolean(),
            digests: batch["sequence_digest"].as_string(),
            n_windows: batch.column_by_name(N_WINDOWS).map(numbers),
        }
    }

    /// Returns the key of row `row`.
    pub fn row(&self, row: usize) -> RowKey<'a> {
        RowKey {
            ordinal: self.ordinals[row],
            id: self.ids.value(row),
            start: self.starts.map_or(0, |starts| starts[row]),
            length: self.lengths[row],
            truncated: self.truncated.value(row),
            // A verified file holds no other text.
            digest: self.digests.value(row).parse().unwrap_or_default(),
            n_windows: self.n_windows.map_or(1, |windows| windows[row]),
        }
    }

    /// Iterates over the keys of all rows.
    pub fn rows(&self) -> impl Iterator<Item = RowKey<'a>> {
        (0..self.ordinals.len()).map(|row| self.row(row))
    }
}

/// Returns the ordinals of a record batch with the key columns. Files store them as int64, because some readers lack uint64;
/// none is negative.
///
/// # Panics
/// If the batch has no int64 column `ordinal`.
pub fn ordinals(batch: &RecordBatch) -> &[u64] {
    let ordinals = batch["ordinal"].as_primitive::<Int64Type>().values();
    ordinals.inner().typed_data()
}

/// Builds the key columns of new rows.
#[derive(Debug, Default)]
pub struct KeyColumnsBuilder {
    ordinals: Int64Builder,
    ids: StringBuilder,
    starts: UInt32Builder,
    lengths: UInt32Builder,
    truncated: BooleanBuilder,
    digests: StringBuilder,
}

impl KeyColumnsBuilder {
    /// Starts with room for `rows` rows whose ids have `id_bytes` bytes together.
    pub fn with_capacity(rows: usize, id_bytes: usize) -> Self {
        Self {
            ordinals: Int64Builder::with_capacity(rows),
            ids: StringBuilder::with_capacity(rows, id_bytes),
            starts: UInt32Builder::with_capacity(rows),
            lengths: UInt32Builder::with_capacity(rows),
            truncated: BooleanBuilder::with_capacity(rows),
            digests: StringBuilder::with_capacity(rows, 32 * rows),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Never: digits are ASCII.
    pub fn push(&mut self, key: &RowKey) {
        self.ordinals.append_value(key.ordinal.cast_signed());
        self.ids.append_value(key.id);
        self.starts.append_value(key.start);
        self.lengths.append_value(key.length);
        self.truncated.append_value(key.truncated);
        let digits = key.digest.digits();
        // Digits are text.
        let digits = str::from_utf8(&digits).unwrap_or_default();
        self.digests.append_value(digits);
    }

    /// Returns the columns of the rows so far, in the order of [`KEY_COLUMNS`], and empties the builder.
    pub fn finish(&mut self) -> [ArrayRef; KEY_COLUMNS.len()] {
        [
            Arc::new(self.ordinals.finish()),
            Arc::new(self.ids.finish()),
            Arc::new(self.starts.finish()),
            Arc::new(self.lengths.finish()),
            Arc::new(self.truncated.finish()),
            Arc::new(self.digests.finish()),
        ]
    }
}
