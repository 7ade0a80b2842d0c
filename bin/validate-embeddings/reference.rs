//! A reference: a Parquet file of any origin.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Schema, UInt32Type};
use plmkit_check::Reference;
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{Column, LIST_SHOWN, guarded, one_line, path_text};
use plmkit_store::{EmbeddingsReader, FileKind, ForeignParquet};

/// Reads all vectors of the file: of its column `id`, of `start` if there is one, and of the columns that are
/// lists of floating-point numbers. Embeddings of our own are verified by their digest.
pub(crate) fn read_reference(path: &Path) -> Result<Reference, Fault> {
    let mut names = Vec::new();
    let mut file = ForeignParquet::open(path, |schema| {
        names = vector_columns(schema);
        if schema.index_of("id").is_err() || names.is_empty() {
            let fields = schema.fields().iter();
            let found: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
            let expected =
                "expected a column 'id' and lists of floating-point numbers, found columns";
            let found = one_line(&found.join(", "), LIST_SHOWN);
            return Err(format!("{expected} {found}"));
        }
        let keys = ["id", "start"].map(str::to_owned);
        Ok(keys.into_iter().chain(names.clone()).collect())
    })
    .map_err(|error| error.of_input(FileKind::Embeddings))?;
    let mut own = file
        .is_own()
        .then(|| EmbeddingsReader::open(path))
        .transpose()?;
    if own.is_some() {
        // A map a row, each of another size.
        names.retain(|name| name.parse() != Ok(Column::Contacts));
    }
    let mut next_batch = || match &mut own {
        Some(embeddings) => embeddings.next_batch(),
        None => file.next_batch(),
    };
    let mut reference = Reference::new(names.clone());
    let broken = |what: String| {
        // It may quote names of columns.
        let what = one_line(&what, LIST_SHOWN);
        Fault::new(Exit::Data, format!("{}: {what}", path_text(path)))
    };
    while let Some(batch) = next_batch()? {
        guarded(|| add(&mut reference, &names, &batch))
            .unwrap_or_else(Err)
            .map_err(broken)?;
    }
    let sorted = reference.sort();
    sorted.map_err(|error| broken(error.to_string()))?;
    Ok(reference)
}

/// The names of the columns that are lists of floating-point numbers.
fn vector_columns(schema: &Schema) -> Vec<String> {
    let vectors = schema.fields().iter().filter(
        |field| matches!(field.data_type(), DataType::List(item) if item.data_type().is_floating()),
    );
    vectors.map(|field| field.name().clone()).collect()
}

/// Adds the rows of a batch.
fn add(reference: &mut Reference, names: &[String], batch: &RecordBatch) -> Result<(), String> {
    let ids = whole(batch, "id", &DataType::Utf8)?;
    let ids = ids.as_string::<i32>();
    let starts = batch.column_by_name("start");
    let starts = starts
        .map(|_| whole(batch, "start", &DataType::UInt32))
        .transpose()?;
    let starts = starts.as_ref().map(AsArray::as_primitive::<UInt32Type>);
    let item = Field::new_list_field(DataType::Float32, true);
    let lists = names
        .iter()
        .map(|name| whole(batch, name, &DataType::List(Arc::new(item.clone()))))
        .collect::<Result<Vec<ArrayRef>, String>>()?;
    for row in 0..batch.num_rows() {
        let vectors = lists.iter().map(|list| {
            let list = list.as_list::<i32>();
            let (from, to) = (list.value_offsets()[row], list.value_offsets()[row + 1]);
            &list.values().as_primitive::<Float32Type>().values()[from as usize..to as usize]
        });
        let start = starts.map_or(0, |starts| starts.value(row));
        reference
            .push(ids.value(row), start, vectors)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A column as `expected`, if that is possible and no value is missing.
fn whole(batch: &RecordBatch, name: &str, expected: &DataType) -> Result<ArrayRef, String> {
    let column = &batch[name];
    let values = cast(column, expected).map_err(|error| format!("column '{name}': {error}"))?;
    let inner = values
        .as_list_opt::<i32>()
        .map_or(0, |list| list.values().null_count());
    match values.null_count() + inner {
        0 => Ok(values),
        _ => Err(format!(
            "column '{name}' has a value that is missing or not of type {expected}"
        )),
    }
}
