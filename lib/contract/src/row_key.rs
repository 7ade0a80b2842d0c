//! Rows and the columns that identify them, in shards, batches and embeddings files.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Int8Builder, Int64Builder, StringBuilder, UInt32Builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

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

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// Of a column of int64.
    Long(i64),
    /// Of a column of uint32.
    Number(u32),
    /// Of a column of int8.
    Small(i8),
    /// Of a column of bool.
    Flag(bool),
    /// Of a column of text; a null without one.
    Text(Option<&'a str>),
    /// The digest of a sequence, as text; of the default, none yet.
    Digest(SequenceDigest),
    /// A word of which a column has few.
    Word(&'static str),
}

/// A row whose cells are in the order of its file's columns.
pub trait Row {
    /// Returns the value of each column.
    fn cells(&self) -> impl IntoIterator<Item = Cell<'_>>;
}

impl Row for RowKey<'_> {
    fn cells(&self) -> impl IntoIterator<Item = Cell<'_>> {
        [
            Cell::Long(self.ordinal.cast_signed()),
            Cell::Text(Some(self.id)),
            Cell::Number(self.start),
            Cell::Number(self.length),
            Cell::Flag(self.truncated),
            Cell::Digest(self.digest),
        ]
    }
}

impl Row for ShardRow<'_> {
    fn cells(&self) -> impl IntoIterator<Item = Cell<'_>> {
        [
            Cell::Long(self.key.ordinal.cast_signed()),
            Cell::Text(Some(self.key.id)),
            Cell::Text(self.description),
            Cell::Text(Some(self.sequence)),
            Cell::Number(self.key.length),
            Cell::Number(self.key.start),
            Cell::Flag(self.key.truncated),
            Cell::Digest(self.key.digest),
        ]
    }
}

/// Builds the columns of rows.
pub struct RowsBuilder {
    schema: SchemaRef,
    columns: Vec<ColumnBuilder>,
    rows: usize,
}

enum ColumnBuilder {
    Long(Int64Builder),
    Number(UInt32Builder),
    Small(Int8Builder),
    Flag(BooleanBuilder),
    Text(StringBuilder),
}

impl RowsBuilder {
    /// Starts without rows.
    pub fn new(schema: SchemaRef) -> Self {
        let columns = schema.fields().iter();
        // A default takes a kilobyte, and there may be thousands of builders.
        let columns = columns.map(|field| match field.data_type() {
            DataType::Int64 => ColumnBuilder::Long(Int64Builder::with_capacity(0)),
            DataType::UInt32 => ColumnBuilder::Number(UInt32Builder::with_capacity(0)),
            DataType::Int8 => ColumnBuilder::Small(Int8Builder::with_capacity(0)),
            DataType::Boolean => ColumnBuilder::Flag(BooleanBuilder::with_capacity(0)),
            _ => ColumnBuilder::Text(StringBuilder::with_capacity(0, 0)),
        });
        Self {
            columns: columns.collect(),
            schema,
            rows: 0,
        }
    }

    /// Starts without rows. The columns are [`KEY_COLUMNS`].
    pub fn of_keys() -> Self {
        Self::new(Arc::new(Schema::new(key_fields().to_vec())))
    }

    /// Adds a row. Returns the bytes of its texts.
    ///
    /// # Panics
    /// If a cell is of another type than its column.
    pub fn push(&mut self, row: &impl Row) -> usize {
        let (mut bytes, none) = (0, SequenceDigest::default());
        for (column, cell) in self.columns.iter_mut().zip(row.cells()) {
            match (column, cell) {
                (ColumnBuilder::Long(column), Cell::Long(value)) => column.append_value(value),
                (ColumnBuilder::Number(column), Cell::Number(value)) => column.append_value(value),
                (ColumnBuilder::Small(column), Cell::Small(value)) => column.append_value(value),
                (ColumnBuilder::Flag(column), Cell::Flag(value)) => column.append_value(value),
                (ColumnBuilder::Text(column), Cell::Text(text)) => {
                    bytes += text.map_or(0, str::len);
                    column.append_option(text);
                }
                // Those of a row group of a shard are computed together, when it is encoded.
                (ColumnBuilder::Text(column), Cell::Digest(digest)) if digest == none => {
                    column.append_value("");
                }
                (ColumnBuilder::Text(column), Cell::Digest(digest)) => digest.append_to(column),
                (ColumnBuilder::Text(column), Cell::Word(word)) => column.append_value(word),
                (_, cell) => panic!("{cell:?} is of another type than its column"),
            }
        }
        self.rows += 1;
        bytes
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the columns of the rows so far, and removes the rows.
    pub fn finish(&mut self) -> Vec<ArrayRef> {
        let rows = std::mem::take(&mut self.rows);
        let columns = self.columns.iter_mut();
        let columns = columns.map(|column| -> ArrayRef {
            match column {
                ColumnBuilder::Long(column) => Arc::new(column.finish()),
                ColumnBuilder::Number(column) => Arc::new(column.finish()),
                ColumnBuilder::Small(column) => Arc::new(column.finish()),
                ColumnBuilder::Flag(column) => Arc::new(column.finish()),
                ColumnBuilder::Text(column) => {
                    let texts = column.finish();
                    // The next rows are of the same size: a column that grows is copied.
                    *column = StringBuilder::with_capacity(rows, texts.values().len());
                    Arc::new(texts)
                }
            }
        });
        columns.collect()
    }

    /// Returns the rows so far as a record batch, and removes them.
    ///
    /// # Panics
    /// If a row lacked a value that every row must have.
    pub fn batch(&mut self) -> RecordBatch {
        let columns = self.finish();
        RecordBatch::try_new(Arc::clone(&self.schema), columns).expect("rows of the schema")
    }
}
