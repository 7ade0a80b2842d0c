//! A reference: Parquet files of any origin.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use plmkit_check::{Reference, ReferenceError};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Column, LIST_SHOWN, Quoted, catch_decoder_panic, one_line, path_text};
use plmkit_store::{EmbeddingsReader, ExternalParquet, FileKind, StoreError};

use crate::args::Args;

/// A vector column of the reference, and the column of the embeddings to compare it with, where one is named:
/// `embedding=mean_33`.
#[derive(Clone, Debug)]
pub(crate) struct AskedColumn {
    name: String,
    ours: Option<Column>,
}

impl FromStr for AskedColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, ours) = match text.rsplit_once('=') {
            None => (text, None),
            Some((name, ours)) => (name, Some(pooled(ours)?)),
        };
        if name.is_empty() {
            return Err("expected the name of a column".to_owned());
        }
        let name = name.to_owned();
        Ok(Self { name, ours })
    }
}

/// The column of this name, which has one vector a row.
fn pooled(name: &str) -> Result<Column, String> {
    let column = name.parse().ok();
    let column = column.filter(|column| matches!(column, Column::Pooled { .. }));
    column.ok_or_else(|| {
        format!(
            "expected a column of the embeddings with one vector a row, such as mean_33, found {}",
            Quoted(name)
        )
    })
}

/// A column of the embeddings that two of the columns are to be compared with.
pub(crate) fn compared_twice(asked: &[AskedColumn]) -> Option<String> {
    let with = |column: &AskedColumn| {
        let ours = column.ours.as_ref();
        ours.map_or_else(|| column.name.clone(), ToString::to_string)
    };
    let mut names: Vec<String> = asked.iter().map(with).collect();
    names.sort_unstable();
    let mut pairs = names.windows(2);
    pairs
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0].clone())
}

/// Reads all vectors of the files: of the column with the ids, of `start` if there is one, and of the columns that were
/// asked for, or else those of the first file that are lists of floating-point numbers. Embeddings of our own are
/// verified by their digest.
pub(crate) fn read_reference(args: &Args, stop: &Stop) -> Result<Reference, Fault> {
    let id = &args.reference_id;
    let asked = args.reference_column.iter();
    let asked: Vec<_> = asked
        .map(|asked| (asked.name.clone(), asked.ours))
        .collect();
    let mut names: Vec<String> = asked.iter().map(|(name, _)| name.clone()).collect();
    let mut reference = (!asked.is_empty()).then(|| Reference::asked(asked));
    let mut ends = Vec::new();
    for path in &args.reference {
        let mut file = ReferenceFile::open(path, id, &mut names)?;
        let reference = reference.get_or_insert_with(|| Reference::new(names.clone()));
        while let Some(batch) = file.next_batch()? {
            if stop.requested() {
                return Err(StoreError::Stopped.into());
            }
            catch_decoder_panic(|| add(reference, id, &names, &batch))
                .unwrap_or_else(Err)
                .map_err(|what| broken(path, &what))?;
        }
        ends.push(reference.rows());
    }
    let reference = reference.unwrap_or_else(|| Reference::new(names));
    let mut reference = reference.matched_by(args.match_by);
    let sorted = reference.sort();
    sorted.map_err(|error| doubled(&error, &args.reference, &ends))?;
    Ok(reference)
}

/// Two rows of files with one key. Each file has the rows up to its end.
fn doubled(error: &ReferenceError, files: &[PathBuf], ends: &[usize]) -> Fault {
    let file = |row: usize| &files[ends.partition_point(|&end| end <= row)];
    match error {
        ReferenceError::Doubled {
            id,
            start,
            row,
            first,
            first_id,
        } if file(*row) != file(*first) => {
            let name = (id != first_id).then(|| format!(", as {}", Quoted(first_id)));
            let (id, name) = (Quoted(id), name.unwrap_or_default());
            let other = path_text(file(*first));
            let what = format!("{id} from residue {start} is in {other}{name}, too");
            broken(file(*row), &what)
        }
        ReferenceError::Doubled { row, .. } => broken(file(*row), &error.to_string()),
        _ => broken(&files[0], &error.to_string()),
    }
}

/// An error of a file. It may quote names of columns.
pub(crate) fn broken(path: &Path, what: &str) -> Fault {
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
    fn open(path: &Path, id: &str, names: &mut Vec<String>) -> Result<Self, Fault> {
        let is_asked = !names.is_empty();
        let file = ExternalParquet::open(path, |schema| {
            let vectors = vector_columns(schema);
            if !is_asked {
                names.clone_from(&vectors);
            }
            let is_there = |name: &str| schema.index_of(name).is_ok();
            if !is_there(id) || names.is_empty() || !names.iter().all(|name| is_there(name)) {
                let fields = schema.fields().iter();
                let found: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
                let expected = if is_asked {
                    one_line(&names.join(", "), LIST_SHOWN)
                } else {
                    "lists of floating-point numbers".to_owned()
                };
                let found = one_line(&found.join(", "), LIST_SHOWN);
                return Err(format!(
                    "expected a column {} and {expected}, found columns {found}",
                    Quoted(id)
                ));
            }
            if let Some(name) = names.iter().find(|name| !vectors.contains(name)) {
                let name = Quoted(name);
                return Err(format!(
                    "column {name}: expected lists of floating-point numbers"
                ));
            }
            let kind = schema.field_with_name(id).map(Field::data_type);
            if !kind.is_ok_and(|kind| kind.is_integer() || kind.is_string() || kind.is_binary()) {
                return Err(format!("column {}: expected text or integers", Quoted(id)));
            }
            let keys = [id, "start"].map(str::to_owned);
            Ok(keys.into_iter().chain(names.clone()).collect())
        })
        .map_err(|error| error.of_input(FileKind::Embeddings))?;
        let own = file
            .is_own()
            .then(|| EmbeddingsReader::open(path))
            .transpose()?;
        if own.is_some() && !is_asked {
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
pub(crate) fn vector_columns(schema: &Schema) -> Vec<String> {
    let vectors = schema.fields().iter().filter(
        |field| matches!(field.data_type(), DataType::List(item) if item.data_type().is_floating()),
    );
    vectors.map(|field| field.name().clone()).collect()
}

/// Adds the rows of a batch.
fn add(
    reference: &mut Reference,
    id: &str,
    names: &[String],
    batch: &RecordBatch,
) -> Result<(), String> {
    let ids = whole(batch, id, &DataType::Utf8)?;
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
pub(crate) fn lists(batch: &RecordBatch, names: &[String]) -> Result<Vec<ArrayRef>, String> {
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let lists = names.iter();
    lists
        .map(|name| whole(batch, name, &DataType::List(Arc::clone(&item))))
        .collect()
}

/// A vector of such a list.
pub(crate) fn vector(list: &ArrayRef, row: usize) -> &[f32] {
    let list = list.as_list::<i32>();
    let (from, to) = (list.value_offsets()[row], list.value_offsets()[row + 1]);
    &list.values().as_primitive::<Float32Type>().values()[from as usize..to as usize]
}

/// A column as `expected`, if that is possible and no value is missing.
pub(crate) fn whole(
    batch: &RecordBatch,
    name: &str,
    expected: &DataType,
) -> Result<ArrayRef, String> {
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
