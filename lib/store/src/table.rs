//! Tables that other programs read: Parquet, TSV and CSV.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch, downcast_integer_array};
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use strum::{Display, EnumMessage, EnumString, VariantArray};

use crate::parquet::compression;
use crate::{AtomicFile, StoreError};

/// The rows of a row group of Parquet: their encoded columns are held in memory.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, VariantArray, EnumMessage, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum TableFormat {
    /// Parquet, compressed with zstd
    Parquet,
    /// Tab-separated values with a header line
    Tsv,
    /// Comma-separated values with a header line
    Csv,
}

/// Writes a table that appears complete. Text is quoted as in RFC 4180, with LF line ends. A vector is a column of Parquet, and of text
/// one column for each value, `NAME_0`, `NAME_1` and so on.
pub struct TableWriter {
    path: PathBuf,
    writer: Writer,
}

enum Writer {
    Parquet(Box<ArrowWriter<AtomicFile>>),
    Text(Box<csv::Writer<AtomicFile>>),
}

impl TableWriter {
    /// Starts a table of these columns that will be `file`. `about` has the metadata of a Parquet file.
    pub fn create(
        file: AtomicFile,
        schema: &SchemaRef,
        format: TableFormat,
        about: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StoreError> {
        let path = file.path().to_owned();
        let writer = match format {
            TableFormat::Parquet => {
                let about = about.into_iter();
                let about = about.map(|(key, value)| KeyValue::new(key, value));
                let properties = WriterProperties::builder()
                    .set_compression(compression())
                    .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                    .set_key_value_metadata(Some(about.collect()));
                let writer = ArrowWriter::try_new(file, schema.clone(), Some(properties.build()));
                let failed = |error| StoreError::encoding_parquet(&path, error);
                Writer::Parquet(Box::new(writer.map_err(failed)?))
            }
            TableFormat::Tsv | TableFormat::Csv => {
                let mut builder = csv::WriterBuilder::new();
                if format == TableFormat::Tsv {
                    builder.delimiter(b'\t');
                }
                let mut writer = builder.from_writer(file);
                let written = writer.write_record(names(schema));
                written.map_err(|error| text_error(&path, error))?;
                Writer::Text(Box::new(writer))
            }
        };
        Ok(Self { path, writer })
    }

    /// Adds rows.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), StoreError> {
        match &mut self.writer {
            Writer::Parquet(writer) => {
                let written = writer.write(rows);
                written.map_err(|error| StoreError::encoding_parquet(&self.path, error))
            }
            Writer::Text(writer) => write_text(writer, rows, &self.path),
        }
    }

    /// Publishes the file.
    pub fn finish(self) -> Result<(), StoreError> {
        let file = match self.writer {
            Writer::Parquet(writer) => {
                let file = writer.into_inner();
                file.map_err(|error| StoreError::encoding_parquet(&self.path, error))?
            }
            Writer::Text(writer) => {
                let file = writer.into_inner();
                file.map_err(|error| StoreError::cannot_write(&self.path)(error.into_error()))?
            }
        };
        file.finish()
    }
}

/// The names of the columns of text.
fn names(schema: &Schema) -> Vec<String> {
    let fields = schema.fields().iter();
    let names = fields.flat_map(|field| match field.data_type() {
        DataType::FixedSizeList(_, width) => {
            let numbers = 0..*width;
            numbers.map(|at| format!("{}_{at}", field.name())).collect()
        }
        _ => vec![field.name().clone()],
    });
    names.collect()
}

fn write_text(
    writer: &mut csv::Writer<AtomicFile>,
    rows: &RecordBatch,
    path: &Path,
) -> Result<(), StoreError> {
    let columns = rows.columns().iter().map(|column| {
        let (values, width): (&dyn Array, _) = match column.data_type() {
            DataType::FixedSizeList(_, width) => {
                (column.as_fixed_size_list().values(), *width as usize)
            }
            _ => (column, 1),
        };
        Ok((shown(values)?, width))
    });
    let columns: Result<Vec<_>, String> = columns.collect();
    let columns = columns.map_err(|what| StoreError::malformed(path, what))?;
    let mut text = String::new();
    for row in 0..rows.num_rows() {
        for (values, width) in &columns {
            for at in row * width..(row + 1) * width {
                text.clear();
                values(at, &mut text);
                let written = writer.write_field(&text);
                written.map_err(|error| text_error(path, error))?;
            }
        }
        let ended = writer.write_record(None::<&[u8]>);
        ended.map_err(|error| text_error(path, error))?;
    }
    Ok(())
}

/// Appends the value at a place to a text.
type Append<'a> = Box<dyn Fn(usize, &mut String) + 'a>;

/// How a value of a column is appended to a text: text as it is, floats in the least digits that tell them apart, nothing where no
/// value is.
fn shown(values: &dyn Array) -> Result<Append<'_>, String> {
    // Writing to a string does not fail.
    macro_rules! by {
        ($values:expr) => {{
            let values = $values;
            Box::new(move |at, text: &mut String| {
                if values.is_valid(at) {
                    let _ = write!(text, "{}", values.value(at));
                }
            })
        }};
    }
    macro_rules! by_ryu {
        ($type:ty) => {{
            let values = values.as_primitive::<$type>();
            Box::new(move |at, text: &mut String| {
                if values.is_valid(at) {
                    text.push_str(ryu::Buffer::new().format(values.value(at)));
                }
            })
        }};
    }
    Ok(downcast_integer_array!(values => by!(values),
        DataType::Utf8 => by!(values.as_string::<i32>()),
        DataType::Boolean => by!(values.as_boolean()),
        DataType::Float16 => by!(values.as_primitive::<Float16Type>()),
        DataType::Float32 => by_ryu!(Float32Type),
        DataType::Float64 => by_ryu!(Float64Type),
        other => return Err(format!("no column of a table of text is of type {other}")),
    ))
}

fn text_error(path: &Path, error: csv::Error) -> StoreError {
    StoreError::cannot_write(path)(error.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Float32Type;
    use arrow_array::{ArrayRef, FixedSizeListArray, StringArray};

    use super::*;

    #[test]
    fn text_quotes_ids_and_gives_each_value_a_column() {
        let folder = tempfile::tempdir().expect("temp folder");
        let ids: ArrayRef = Arc::new(StringArray::from(vec![Some("a\"\tb,"), None]));
        let lists = [[1.0, f32::NAN], [1e-9, 0.1]].map(|list| Some(list.map(Some)));
        let vectors: ArrayRef =
            Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists, 2));
        let rows = RecordBatch::try_from_iter([("id", ids), ("mean_4", vectors)]).expect("rows");
        for (format, expected) in [
            (
                TableFormat::Csv,
                "id,mean_4_0,mean_4_1\n\"a\"\"\tb,\",1.0,NaN\n,1e-9,0.1\n",
            ),
            (
                TableFormat::Tsv,
                "id\tmean_4_0\tmean_4_1\n\"a\"\"\tb,\"\t1.0\tNaN\n\t1e-9\t0.1\n",
            ),
        ] {
            let path = folder.path().join(format.to_string());
            let file = AtomicFile::create(&path).expect("create");
            let mut table = TableWriter::create(file, &rows.schema(), format, []).expect("start");
            table.write(&rows.slice(0, 1)).expect("write");
            table.write(&rows.slice(1, 1)).expect("write");
            table.finish().expect("finish");
            assert_eq!(std::fs::read_to_string(&path).expect("a table"), expected);
        }
    }
}
