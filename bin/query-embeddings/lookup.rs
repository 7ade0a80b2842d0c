//! `query-embeddings lookup`.

use std::collections::HashMap;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file, print};
use plmkit_dataset::{Merge, dataset_folder};
use serde::Serialize;

use crate::ids::{IdFiles, warn_of_several};
use crate::open_all;

/// Print the rows of some proteins as JSON lines: the key, and the vectors
///
/// Rows are in the order in which their ids are asked. Nothing is scanned: the filter of ids says which row groups to read, and the
/// page index which pages. An id that the dataset does not have is an error (1), after all others are printed.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("asked").required(true).multiple(true).args(["ids", "fasta", "id"])))]
pub(crate) struct LookupArgs {
    /// Folder of results, of a sample or of many; dataset.json; or an embeddings file
    #[arg(value_name = "DATASET", value_parser = file().map(dataset_folder))]
    dataset: PathBuf,

    /// Ids
    #[arg(value_name = "ID")]
    id: Vec<String>,

    #[command(flatten)]
    files: IdFiles,

    /// Columns to print, such as `mean_33`; all by default
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    column: Vec<String>,
}

impl LookupArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let ids = self.files.read(&self.id, stop)?;
        let mut rows: HashMap<String, Vec<RecordBatch>> = HashMap::new();
        let on_failed = |failed| {
            tracing::warn!("{failed}");
            Ok(())
        };
        let opened = open_all(&self.dataset, on_failed, stop)?;
        let ids = ids.resolve(&opened, stop)?;
        let columns = opened.places(&self.column)?;
        let mut merge = Merge::new(&opened.parts, columns, stop).of_ids(&ids);
        while let Some(found) = merge.next_rows()? {
            let names = found["id"].as_string::<i32>().iter().flatten();
            for (place, id) in names.enumerate() {
                let row = found.slice(place, 1);
                rows.entry(id.to_owned()).or_default().push(row);
            }
        }
        for row in ids
            .in_order()
            .iter()
            .filter_map(|id| rows.get(id))
            .flatten()
        {
            print(line(row) + "\n")?;
        }
        warn_of_several(&ids);
        opened.check_found(&ids, stop)?;
        Ok(Exit::Done)
    }
}

/// A row as a JSON object, with its columns in the order of the file.
fn line(row: &RecordBatch) -> String {
    let schema = row.schema();
    let fields = schema.fields().iter().zip(row.columns());
    let fields = fields.map(|(field, array)| format!("{}:{}", text(field.name()), value(array, 0)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// A value as JSON. A number has as many digits as identify it; infinities and NaN are null.
fn value(array: &ArrayRef, row: usize) -> String {
    let list = |items: ArrayRef| {
        let items = (0..items.len()).map(|item| value(&items, item));
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    };
    match array.data_type() {
        _ if array.is_null(row) => "null".to_owned(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Float32 => text(&array.as_primitive::<Float32Type>().value(row)),
        DataType::Float16 => text(&array.as_primitive::<Float16Type>().value(row).to_f32()),
        DataType::FixedSizeList(..) => list(array.as_fixed_size_list().value(row)),
        DataType::List(_) => list(array.as_list::<i32>().value(row)),
        _ => text(array.as_string::<i32>().value(row)),
    }
}

fn text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
