//! Tables that other programs read: Parquet, TSV and CSV.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::{AtomicFile, StoreError};

/// The rows of a row group of Parquet: their encoded columns are held in memory.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// How a table is written.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray, strum::EnumMessage,
)]
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
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
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
    let options = FormatOptions::default();
    let columns = rows.columns().iter().map(|column| {
        let (values, width): (&dyn Array, _) = match column.data_type() {
            DataType::FixedSizeList(_, width) => {
                (column.as_fixed_size_list().values(), *width as usize)
            }
            _ => (column, 1),
        };
        Ok((ArrayFormatter::try_new(values, &options)?, width))
    });
    let columns: Result<Vec<_>, ArrowError> = columns.collect();
    let columns = columns.map_err(|error| StoreError::encoding_arrow(path, error))?;
    let mut text = String::new();
    for row in 0..rows.num_rows() {
        for (values, width) in &columns {
            for at in row * width..(row + 1) * width {
                text.clear();
                // Writing to a string fails only where a value cannot be shown, which no type here has.
                let _ = write!(text, "{}", values.value(at));
                let written = writer.write_field(&text);
                written.map_err(|error| text_error(path, error))?;
            }
        }
        let ended = writer.write_record(None::<&[u8]>);
        ended.map_err(|error| text_error(path, error))?;
    }
    Ok(())
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
