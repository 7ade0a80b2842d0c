//! A reference: Parquet files of any origin.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use plmkit_check::Reference;
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Column, LIST_SHOWN, catch_decoder_panic, one_line, path_text};
use plmkit_store::{EmbeddingsReader, ExternalParquet, FileKind, StoreError};

/// Reads all vectors of the files: of the columns `id`, of `start` if there is one, and those of the first file that are lists of
/// floating-point numbers. Embeddings of our own are verified by their digest.
pub(crate) fn read_reference(paths: &[PathBuf], stop: &Stop) -> Result<Reference, Fault> {
    let mut names = Vec::new();
    let mut reference = Reference::default();
    for path in paths {
        let mut file = ReferenceFile::open(path, &mut names)?;
        if reference.files.is_empty() {
            reference = Reference::new(names.clone());
        }
        reference.files.push(path_text(path));
        while let Some(batch) = file.next_batch()? {
            if stop.requested() {
                return Err(StoreError::Stopped.into());
            }
            catch_decoder_panic(|| add(&mut reference, &names, &batch))
                .unwrap_or_else(Err)
                .map_err(|what| broken(path, &what))?;
        }
    }
    Ok(reference)
}

/// An error of a file. It may quote names of columns.
fn broken(path: &Path, what: &str) -> Fault {
    let what = one_line(what, LIST_SHOWN);
    Fault::new(Exit::Data, format!("{}: {what}", path_text(path)))
}

/// A file of the reference.
struct ReferenceFile {
    file: ExternalParquet,
    /// Its verified reader, where it is one of our own.
    own: Option<EmbeddingsReader>,
}

impl ReferenceFile {
    /// Opens a file with the columns `id` and `names`. Where there are no `names` yet, they become those of its vector
    /// columns.
    fn open(path: &Path, names: &mut Vec<String>) -> Result<Self, Fault> {
        let is_first = names.is_empty();
        let file = ExternalParquet::open(path, |schema| {
            let vectors = vector_columns(schema);
            let expected = if is_first {
                "lists of floating-point numbers".to_owned()
            } else {
                format!("lists {}", one_line(&names.join(", "), LIST_SHOWN))
            };
            if is_first {
                names.clone_from(&vectors);
            }
            let id = schema.field_with_name("id").map(Field::data_type);
            let is_id = |kind: &DataType| kind.is_integer() || kind.is_string() || kind.is_binary();
            if names.is_empty() || !names.iter().all(|name| vectors.contains(name)) || !id.is_ok_and(is_id) {
                let fields = schema.fields().iter();
                let found: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
                let found = one_line(&found.join(", "), LIST_SHOWN);
                return Err(format!(
                    "expected a column 'id' of text or integers and {expected}, found columns {found}"
                ));
            }
            let keys = ["id", "start"].map(str::to_owned);
            Ok(keys.into_iter().chain(names.clone()).collect())
        })
        .map_err(|error| error.of_input(FileKind::Embeddings))?;
        let own = file
            .is_own()
            .then(|| EmbeddingsReader::open(path))
            .transpose()?;
        if own.is_some() && is_first {
            // A map a row, each of another size.
            names.retain(|name| name.parse() != Ok(Column::Contacts));
        }
        Ok(Self { file, own })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        match &mut self.own {
            Some(embeddings) => embeddings.next_batch(),
            None => self.file.next_batch(),
        }
    }
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
    let lists = lists(batch, names)?;
    for row in 0..batch.num_rows() {
        let vectors = lists.iter().map(|list| vector(list, row));
        let start = starts.map_or(0, |starts| starts.value(row));
        reference
            .push(ids.value(row), start, vectors)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The columns of these names as lists of f32.
fn lists(batch: &RecordBatch, names: &[String]) -> Result<Vec<ArrayRef>, String> {
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let lists = names.iter();
    lists
        .map(|name| whole(batch, name, &DataType::List(Arc::clone(&item))))
        .collect()
}

/// A vector of such a list.
fn vector(list: &ArrayRef, row: usize) -> &[f32] {
    let list = list.as_list::<i32>();
    let (from, to) = (list.value_offsets()[row], list.value_offsets()[row + 1]);
    &list.values().as_primitive::<Float32Type>().values()[from as usize..to as usize]
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
