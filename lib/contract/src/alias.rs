//! Records whose residues another row has, so that they are in no shard.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

use crate::row_key::key_fields;
use crate::{Cell, DESCRIPTION, KeyColumns, Row, RowKey};

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
    /// The key of the row that the record would be: all its embedded residues, however many windows hold them.
    pub key: RowKey<'a>,
    /// The rest of the FASTA header.
    pub description: Option<&'a str>,
    /// The known dataset that holds the representative: its index in the manifest. `None` if the representative is in a shard.
    pub dataset: Option<u32>,
    /// The ordinal of the representative, in this set of shards or in the known dataset.
    pub representative: u64,
}

impl Row for AliasRow<'_> {
    fn cells(&self) -> impl IntoIterator<Item = Cell<'_>> {
        let cells = [
            Cell::Long(self.key.ordinal.cast_signed()),
            Cell::Text(Some(self.key.id)),
            Cell::Text(self.description),
            Cell::Number(self.key.length),
            Cell::Flag(self.key.truncated),
            Cell::Digest(self.key.digest),
        ];
        let dataset = self.dataset.map(Cell::Number);
        let representative = Cell::Long(self.representative.cast_signed());
        cells.into_iter().chain(dataset).chain([representative])
    }
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

/// Iterates over the rows of a batch of a verified [`ALIASES_FILE`] or [`KNOWN_FILE`].
///
/// # Panics
/// If the batch lacks a column of [`aliases_schema`].
pub fn alias_rows(batch: &RecordBatch) -> impl Iterator<Item = AliasRow<'_>> {
    let descriptions = batch[DESCRIPTION].as_string::<i32>();
    let datasets = batch.column_by_name(DATASET);
    let datasets = datasets.map(AsArray::as_primitive::<UInt32Type>);
    let representatives = batch[REPRESENTATIVE].as_primitive::<Int64Type>();
    let keys = KeyColumns::new(batch);
    (0..batch.num_rows()).map(move |row| AliasRow {
        key: keys.row(row),
        description: descriptions.is_valid(row).then(|| descriptions.value(row)),
        dataset: datasets.map(|datasets| datasets.value(row)),
        representative: representatives.value(row).cast_unsigned(),
    })
}
