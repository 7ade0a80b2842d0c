//! A reference: a Parquet file of any origin.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use plmkit_check::{EmbeddedFile, Reference};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Column, LIST_SHOWN, Quoted, catch_decoder_panic, one_line, path_text};
use plmkit_dataset::Vectors;
use plmkit_store::{EmbeddingsReader, ExternalParquet, FileKind, StoreError};

/// Reads the columns `id`, `start` if there is one, and those that are lists of floating-point numbers, for a comparison with
/// `embeddings`. Embeddings of our own are verified by their digest.
pub(crate) fn read_reference(
    path: &Path,
    embeddings: &[EmbeddedFile],
    stop: &Stop,
) -> Result<Reference, Fault> {
    let mut names = Vec::new();
    let opened = ExternalParquet::open(path, |schema| {
        names = vector_columns(schema)?;
        let keys = ["id", "start"].map(str::to_owned);
        Ok(keys.into_iter().chain(names.clone()).collect())
    });
    let mut file = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
    let own = file.is_own().then(|| EmbeddingsReader::open(path));
    let mut own = own.transpose()?;
    if own.is_some() {
        // A map a row, each of another size.
        names.retain(|name| name.parse() != Ok(Column::Contacts));
    }
    // It may quote names of columns.
    let broken = |what: &str| {
        let what = one_line(what, LIST_SHOWN);
        Fault::new(Exit::Data, format!("{}: {what}", path_text(path)))
    };
    let mut reference = Reference::new(path_text(path), names);
    for file in embeddings {
        let pairs = reference.pair(&file.layout.columns);
        if pairs.iter().all(|(_, place)| place.is_none()) {
            let columns = pairs.iter().map(|(column, _)| column.to_string());
            return Err(broken(&format!(
                "has no vector column of the embeddings: expected one of {}, found {}",
                columns.collect::<Vec<_>>().join(", "),
                reference.columns.join(", ")
            )));
        }
    }
    loop {
        if stop.requested() {
            return Err(StoreError::Stopped.into());
        }
        let batch = match &mut own {
            Some(embeddings) => embeddings.next_batch()?,
            None => file.next_batch()?,
        };
        let Some(batch) = batch else {
            return Ok(reference);
        };
        catch_decoder_panic(|| add(&mut reference, &batch))
            .unwrap_or_else(Err)
            .map_err(|what| broken(&what))?;
    }
}

/// The names of the columns that are lists of floating-point numbers, beside ids.
fn vector_columns(schema: &Schema) -> Result<Vec<String>, String> {
    let vectors = schema.fields().iter().filter(
        |field| matches!(field.data_type(), DataType::List(item) if item.data_type().is_floating()),
    );
    let vectors: Vec<String> = vectors.map(|field| field.name().clone()).collect();
    let is_id = |kind: &DataType| kind.is_integer() || kind.is_string() || kind.is_binary();
    let id = schema.field_with_name("id").map(Field::data_type);
    if !vectors.is_empty() && id.is_ok_and(is_id) {
        return Ok(vectors);
    }
    let found: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let found = one_line(&found.join(", "), LIST_SHOWN);
    Err(format!(
        "expected a column 'id' of text or integers and lists of floating-point numbers, found columns {found}"
    ))
}

/// Adds the rows of a batch.
fn add(reference: &mut Reference, batch: &RecordBatch) -> Result<(), String> {
    let ids = whole(batch, "id", &DataType::Utf8)?;
    let starts = batch.column_by_name("start");
    let starts = starts
        .map(|_| whole(batch, "start", &DataType::UInt32))
        .transpose()?;
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Float32, true)));
    let names = reference.columns.iter();
    let lists = names
        .map(|name| Ok(Vectors::new(&whole(batch, name, &list)?)))
        .collect::<Result<Vec<_>, String>>()?;
    for row in 0..batch.num_rows() {
        let vectors = lists.iter().map(|list| list.row(row).to_vec());
        let id = ids.as_string::<i32>().value(row);
        let start = starts
            .as_ref()
            .map_or(0, |starts| starts.as_primitive::<UInt32Type>().value(row));
        if !reference.push(id, start, vectors.collect()) {
            return Err(format!(
                "{} from residue {start} is in the reference more than once",
                Quoted(id)
            ));
        }
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
