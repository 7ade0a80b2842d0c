//! A reference: a Parquet file of any origin.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, ListArray, RecordBatch, StringArray, UInt32Array, downcast_integer_array,
};
use arrow_schema::{DataType, Field, Schema};
use plmkit_check::{EmbeddedFile, Reference};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::Column;
use plmkit_dataset::Vectors;
use plmkit_kit::{LIST_SHOWN, Quoted, catch_decoder_panic, one_line, path_text};
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
        Fault::of_path(Exit::Data, path, what)
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
        StoreError::check(stop)?;
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
    let found = schema.fields().iter();
    let found = found.map(|field| format!("{} ({})", field.name(), field.data_type()));
    let found = one_line(&found.collect::<Vec<_>>().join(", "), LIST_SHOWN);
    Err(format!(
        "expected a column 'id' of text or integers and lists of floating-point numbers, found columns {found}"
    ))
}

/// Adds the rows of a batch.
fn add(reference: &mut Reference, batch: &RecordBatch) -> Result<(), String> {
    let ids = texts(&batch["id"])?;
    check_whole("id", &ids)?;
    let starts = batch.column_by_name("start").map(positions).transpose()?;
    if let Some(starts) = &starts {
        check_whole("start", starts)?;
    }
    let names = reference.columns.iter();
    let lists = names.map(|name| {
        let column = &batch[name];
        check_whole(name, column)?;
        // Vectors of our own are of a fixed size.
        let Some(list) = column.as_list_opt() else {
            return Ok(Vectors::new(column));
        };
        check_whole(name, list.values())?;
        Ok(Vectors::new(&narrowed(list)))
    });
    let lists = lists.collect::<Result<Vec<_>, String>>()?;
    for row in 0..batch.num_rows() {
        let vectors = lists.iter().map(|list| list.row(row).to_vec());
        let id = ids.value(row);
        let start = starts.as_ref().map_or(0, |starts| starts.value(row));
        if !reference.push(id, start, vectors.collect()) {
            return Err(format!(
                "{} from residue {start} is in the reference more than once",
                Quoted(id)
            ));
        }
    }
    Ok(())
}

/// Ids as text. What is no text is missing.
fn texts(ids: &ArrayRef) -> Result<StringArray, String> {
    let text =
        |bytes: Option<&[u8]>| bytes.and_then(|id| str::from_utf8(id).ok().map(str::to_owned));
    Ok(
        downcast_integer_array!(ids => ids.iter().map(|id| id.map(|id| id.to_string())).collect(),
            DataType::Utf8 => ids.as_string().clone(),
            DataType::Binary => ids.as_binary::<i32>().iter().map(text).collect(),
            DataType::FixedSizeBinary(_) => ids.as_fixed_size_binary().iter().map(text).collect(),
            other => return Err(format!("column 'id': expected text or integers, found {other}")),
        ),
    )
}

/// Positions of any type of integers. What is no position is missing.
fn positions(starts: &ArrayRef) -> Result<UInt32Array, String> {
    Ok(downcast_integer_array!(
        starts => starts.iter().map(|start| start.and_then(|start| u32::try_from(i128::from(start)).ok())).collect(),
        other => return Err(format!("column 'start': expected integers, found {other}")),
    ))
}

/// The lists, with numbers of 64 bits as such of 32.
fn narrowed(lists: &ListArray) -> ListArray {
    let (field, offsets, values, nulls) = lists.clone().into_parts();
    let Some(wide) = values.as_primitive_opt::<Float64Type>() else {
        return lists.clone();
    };
    let values = wide.unary::<_, Float32Type>(|value| value as f32);
    let field = Field::clone(&field).with_data_type(DataType::Float32);
    ListArray::new(Arc::new(field), offsets, Arc::new(values), nulls)
}

/// Checks that no value is missing.
fn check_whole(name: &str, values: &dyn Array) -> Result<(), String> {
    match values.null_count() {
        0 => Ok(()),
        _ => Err(format!(
            "column '{name}' has a value that is missing or not of type {}",
            values.data_type()
        )),
    }
}
