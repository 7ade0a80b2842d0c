//! Records whose residues another row has, so that they are in no shard.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

use crate::row_key::{KeyColumns, key_fields};
use crate::{DESCRIPTION, SequenceDigest};

/// The list of records whose residues an earlier record has, in the folder of the shards.
pub const ALIASES_FILE: &str = "aliases.parquet";

/// The list of records whose residues an earlier dataset has, in the folder of the shards.
pub const KNOWN_FILE: &str = "known.parquet";

/// The column with the ordinal of the row that holds the vectors.
pub const REPRESENTATIVE: &str = "representative";

/// The column with the index of the known dataset in the manifest.
pub const DATASET: &str = "dataset";

/// A record that is in no shard, because another row, its *representative*, holds the vectors of its residues. The fields are the
/// columns of [`aliases_schema`] and [`known_schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AliasRow<'a> {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// The record's id, renamed if the duplicate-id policy says so.
    pub id: &'a str,
    /// The rest of the FASTA header.
    pub description: Option<&'a str>,
    /// Residues of the whole protein.
    pub length: u32,
    /// Whether some residues of the protein are in no row.
    pub truncated: bool,
    /// Digest of the embedded residues, all windows together.
    pub digest: SequenceDigest,
    /// The known dataset that holds the representative: its index in the manifest. `None` if the representative is in a shard.
    pub dataset: Option<u32>,
    /// The ordinal of the representative, in this set of shards or in the known dataset.
    pub representative: u64,
}

/// Returns the columns of [`ALIASES_FILE`]: one row for each record whose residues an earlier record has.
///
/// | column | meaning |
/// |---|---|
/// | `ordinal` | 0-based position of the record in the whole input |
/// | `id` | first word of the FASTA header |
/// | `description` | the rest of the header, or null |
/// | `length` | residues of the whole protein |
/// | `truncated` | whether some residues of the protein are in no row |
/// | `sequence_digest` | BLAKE3 of the embedded residues, all windows together, first 16 bytes in hexadecimal |
/// | `representative` | the ordinal of the row that holds the vectors |
pub fn aliases_schema() -> SchemaRef {
    schema(false)
}

/// Returns the columns of [`KNOWN_FILE`]: one row for each record whose residues an earlier dataset has. The columns are those of
/// [`aliases_schema`], with `dataset` before `representative`: the index of the dataset in the manifest. `representative` is an
/// ordinal of that dataset.
pub fn known_schema() -> SchemaRef {
    schema(true)
}

fn schema(with_dataset: bool) -> SchemaRef {
    let [ordinal, id, _, length, truncated, digest] = key_fields();
    let description = Field::new(DESCRIPTION, DataType::Utf8, true);
    let mut fields = vec![ordinal, id, description, length, truncated, digest];
    if with_dataset {
        fields.push(Field::new(DATASET, DataType::UInt32, false));
    }
    fields.push(Field::new(REPRESENTATIVE, DataType::Int64, false));
    Arc::new(Schema::new(fields))
}

/// The columns of a record batch of [`ALIASES_FILE`] or [`KNOWN_FILE`].
#[derive(Debug)]
pub struct AliasColumns<'a> {
    keys: KeyColumns<'a>,
    descriptions: &'a StringArray,
    datasets: Option<&'a [u32]>,
    representatives: &'a [i64],
}

impl<'a> AliasColumns<'a> {
    /// Takes the columns of a batch of a verified file.
    ///
    /// # Panics
    /// If the batch lacks a column of [`aliases_schema`].
    pub fn new(batch: &'a RecordBatch) -> Self {
        let datasets = batch.column_by_name(DATASET);
        Self {
            keys: KeyColumns::new(batch),
            descriptions: batch[DESCRIPTION].as_string(),
            datasets: datasets.map(|column| &column.as_primitive::<UInt32Type>().values()[..]),
            representatives: batch[REPRESENTATIVE].as_primitive::<Int64Type>().values(),
        }
    }

    /// Iterates over all rows.
    pub fn rows(&self) -> impl Iterator<Item = AliasRow<'a>> {
        self.keys.rows().enumerate().map(|(row, key)| AliasRow {
            ordinal: key.ordinal,
            id: key.id,
            description: (self.descriptions.is_valid(row)).then(|| self.descriptions.value(row)),
            length: key.length,
            truncated: key.truncated,
            digest: key.digest,
            dataset: self.datasets.map(|datasets| datasets[row]),
            representative: self.representatives[row].cast_unsigned(),
        })
    }
}
