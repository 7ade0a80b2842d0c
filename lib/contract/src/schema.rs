//! The columns of each kind of data file.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::{Column, StoreDtype, VOCABULARY};

/// The columns that identify a row, in the order in which every batches and embeddings file begins.
pub const KEY_COLUMNS: [&str; 6] = ["ordinal", "id", "start", "length", "truncated", "digest"];

/// The columns of a shard: one row for each sequence, or for each window of one.
///
/// | column | meaning |
/// |---|---|
/// | `ordinal` | 0-based position of the record in the whole input, rejected records included; with `start` the key |
/// | `id` | first word of the FASTA header |
/// | `description` | the rest of the header, null where there is none |
/// | `sequence` | the residues to embed, upper case |
/// | `length` | residues of the whole protein |
/// | `start` | 0-based offset of this row's first residue in the protein |
/// | `truncated` | true where residues of the protein are in no row at all |
/// | `digest` | BLAKE3 of `sequence`, first 16 bytes |
pub fn shard_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ordinal", DataType::UInt64, false),
        Field::new("id", DataType::Utf8, false),
        Field::new("description", DataType::Utf8, true),
        Field::new("sequence", DataType::Utf8, false),
        Field::new("length", DataType::UInt32, false),
        Field::new("start", DataType::UInt32, false),
        Field::new("truncated", DataType::Boolean, false),
        Field::new("digest", DataType::FixedSizeBinary(16), false),
    ]))
}

/// The columns of a batches file: one record batch for each pack, one row for each sequence in it.
///
/// `tokens` holds `<cls> residues <eos>` as token ids. Its offsets buffer is `cu_seqlens`, its values buffer the
/// packed input ids: what a variable-length attention kernel takes, with nothing to build.
pub fn batches_schema() -> SchemaRef {
    let mut fields = key_fields();
    let token = Field::new_list_field(DataType::UInt8, false);
    fields.push(Field::new("tokens", DataType::List(Arc::new(token)), false));
    Arc::new(Schema::new(fields))
}

/// The columns of an embeddings file: the key, then `columns` of a model whose vectors have `dim` values.
pub fn embeddings_schema(columns: &[Column], dim: usize, dtype: StoreDtype) -> SchemaRef {
    let mut fields = key_fields();
    let columns = columns
        .iter()
        .map(|column| Field::new(column.to_string(), column_type(*column, dim, dtype), false));
    fields.extend(columns);
    Arc::new(Schema::new(fields))
}

fn column_type(column: Column, dim: usize, dtype: StoreDtype) -> DataType {
    let item = |kind| Arc::new(Field::new_list_field(kind, false));
    let vector = |values: usize| {
        let values = i32::try_from(values).unwrap_or(i32::MAX);
        DataType::FixedSizeList(item(dtype.arrow()), values)
    };
    match column {
        Column::Pooled(_) => vector(dim),
        Column::Residues(_) => DataType::List(item(vector(dim))),
        Column::Logits => DataType::List(item(vector(VOCABULARY))),
        Column::Contacts => DataType::List(item(dtype.arrow())),
    }
}

/// The columns of an embeddings file after its key, with the dimension of the model's vectors and their type, or what
/// is wrong with them. The first is a pooled one.
///
/// ```
/// use plmkit_contract::{Column, StoreDtype, embedding_columns, embeddings_schema};
/// let columns = ["mean_6", "contacts"].map(|name| name.parse::<Column>().unwrap());
/// let schema = embeddings_schema(&columns, 320, StoreDtype::F32);
/// assert_eq!(embedding_columns(&schema).unwrap(), (columns.to_vec(), 320, StoreDtype::F32));
/// ```
pub fn embedding_columns(schema: &Schema) -> Result<(Vec<Column>, usize, StoreDtype), String> {
    let fields = schema.fields();
    let first = fields
        .get(KEY_COLUMNS.len())
        .ok_or_else(|| "expected at least one vector column, found none".to_owned())?;
    let DataType::FixedSizeList(value, dim) = first.data_type() else {
        return Err(format!("column '{}' is no vector", first.name()));
    };
    let dtype = match value.data_type() {
        DataType::Float32 => StoreDtype::F32,
        DataType::Float16 => StoreDtype::F16,
        other => return Err(format!("column '{}' holds {other} values", first.name())),
    };
    let columns = fields[KEY_COLUMNS.len()..]
        .iter()
        .map(|field| {
            let name = field.name();
            name.parse().map_err(|()| {
                format!(
                    "column '{name}' is not named <pool>_<layer>, residues_<layer>, logits or contacts"
                )
            })
        })
        .collect::<Result<Vec<Column>, String>>()?;
    let dim = *dim as usize;
    let expected = embeddings_schema(&columns, dim, dtype);
    if fields_text(&expected) == fields_text(schema) {
        Ok((columns, dim, dtype))
    } else {
        Err(format!(
            "expected columns {}, found {}",
            one_line(&expected),
            one_line(schema)
        ))
    }
}

fn key_fields() -> Vec<Field> {
    vec![
        Field::new("ordinal", DataType::UInt64, false),
        Field::new("id", DataType::Utf8, false),
        Field::new("start", DataType::UInt32, false),
        Field::new("length", DataType::UInt32, false),
        Field::new("truncated", DataType::Boolean, false),
        Field::new("digest", DataType::FixedSizeBinary(16), false),
    ]
}

/// A schema as text, one column a line: `name: type`, with a `?` after the type of a column that may be null.
pub fn fields_text(schema: &Schema) -> String {
    let mut text = String::new();
    for field in schema.fields() {
        let null = if field.is_nullable() { "?" } else { "" };
        let _ = writeln!(
            text,
            "{}: {}{null}",
            field.name(),
            type_text(field.data_type())
        );
    }
    text
}

fn one_line(schema: &Schema) -> String {
    fields_text(schema).trim_end().replace('\n', ", ")
}

fn type_text(data_type: &DataType) -> String {
    let item = |field: &Field| {
        let null = if field.is_nullable() { "?" } else { "" };
        format!("{}{null}", type_text(field.data_type()))
    };
    match data_type {
        DataType::UInt8 => "u8".into(),
        DataType::UInt32 => "u32".into(),
        DataType::UInt64 => "u64".into(),
        DataType::Float16 => "f16".into(),
        DataType::Float32 => "f32".into(),
        DataType::Boolean => "bool".into(),
        DataType::Utf8 => "utf8".into(),
        DataType::FixedSizeBinary(width) => format!("fixed[{width}]"),
        DataType::List(field) => format!("list<{}>", item(field)),
        DataType::FixedSizeList(field, count) => format!("vector<{}, {count}>", item(field)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract as it is checked in; a change to it must change the golden file, the contract version and
    /// the changelog.
    #[test]
    fn golden_schemas() {
        let columns = ["mean_33", "bos_0", "residues_33", "logits", "contacts"]
            .map(|name| name.parse::<Column>().expect("a column"));
        let found = format!(
            "[shard]\n{}\n[batches]\n{}\n[embeddings with a column of each kind]\n{}",
            fields_text(&shard_schema()),
            fields_text(&batches_schema()),
            fields_text(&embeddings_schema(&columns, 1280, StoreDtype::F32)),
        );
        assert_eq!(found, include_str!("../golden/schemas.txt"));
    }

    #[test]
    fn foreign_columns_are_named() {
        let schema = shard_schema();
        let error = embedding_columns(&schema).expect_err("a shard holds no vectors");
        assert!(error.contains("truncated"), "{error}");
    }
}
