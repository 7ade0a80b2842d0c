//! A column of vectors in formats of other programs: a matrix of numpy, or a table of text.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use plmkit_contract::{Stop, StoreDtype};
use plmkit_store::{AtomicFile, TableFormat, TableWriter, remove_published};

use crate::select::Missing;
use crate::vectors::{bytes, place_of};
use crate::{AskedIds, DatasetError, Merge, Parts};

/// Which vectors are written, and how.
#[derive(Clone, Copy, Debug)]
pub struct VectorsConfig<'a> {
    /// The format.
    pub format: RowFormat,
    /// The column, if several have one vector for each protein.
    pub column: Option<&'a str>,
    /// The ids of the rows, and whether some may be missing; all rows by default.
    pub ids: Option<(&'a AskedIds, bool)>,
    /// The file to write.
    pub out: &'a Path,
    /// Whether to replace other files.
    pub force: bool,
}

/// How rows are written.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray, strum::EnumMessage,
)]
#[strum(serialize_all = "lowercase")]
pub enum RowFormat {
    /// All columns of embeddings
    Parquet,
    /// A matrix with the vectors of one column
    Npy,
    /// A table with the key, the labels and a column for each value of the vectors of one column
    Tsv,
    /// The same, separated by commas
    Csv,
}

/// Returns the file with the ids of the rows of the matrix `out`.
pub fn ids_beside(out: &Path) -> PathBuf {
    out.with_extension("ids.txt")
}

/// Writes the vectors of one column, in the order of the input, and returns the number of rows. `advance` is told the rows as they are
/// written. Memory does not grow with the rows.
///
/// # Errors
/// If the column has not one vector for each protein, or is not named where there are several; if ids have no rows.
pub fn write_vectors(
    parts: &Parts,
    config: &VectorsConfig<'_>,
    mut advance: impl FnMut(u64),
    stop: &Stop,
) -> Result<u64, DatasetError> {
    let place = place_of(parts, config.column)?;
    let expected = match config.ids {
        Some((ids, allow_missing)) => count(parts, ids, allow_missing, stop)?,
        None => parts.rows(),
    };
    let mut writer = Writer::create(parts, (place, expected), config)?;
    let mut merge = Merge::new(parts, [place], stop);
    if let Some((ids, _)) = config.ids {
        merge = merge.of_ids(ids);
    }
    let mut rows = 0;
    while let Some(batch) = merge.next_rows()? {
        writer.write(&batch)?;
        rows += batch.num_rows() as u64;
        advance(batch.num_rows() as u64);
    }
    if rows != expected {
        let what = format!("expected {expected} rows, as the metadata say, found {rows}");
        return Err(DatasetError::content(&parts.parts[0].path, what));
    }
    writer.finish(config)?;
    Ok(rows)
}

/// Counts the rows of some ids.
fn count(
    parts: &Parts,
    ids: &AskedIds,
    allow_missing: bool,
    stop: &Stop,
) -> Result<u64, DatasetError> {
    let mut merge = Merge::new(parts, [], stop).of_ids(ids);
    let mut missing = Missing::new(ids);
    let mut rows = 0;
    while let Some(batch) = merge.next_rows()? {
        missing.remove_rows(&batch);
        rows += batch.num_rows() as u64;
    }
    missing.check(allow_missing)?;
    Ok(rows)
}

/// Files under construction.
enum Writer {
    Matrix {
        matrix: AtomicFile,
        ids: AtomicFile,
        column: String,
        dtype: StoreDtype,
    },
    Table(TableWriter),
}

impl Writer {
    fn create(
        parts: &Parts,
        (place, rows): (usize, u64),
        config: &VectorsConfig<'_>,
    ) -> Result<Self, DatasetError> {
        let create =
            |path: &Path| Ok::<_, DatasetError>(AtomicFile::create(path)?.keeping(!config.force));
        let mut matrix = create(config.out)?;
        let layout = &parts.layout;
        let table = match config.format {
            RowFormat::Npy => None,
            RowFormat::Parquet => Some(TableFormat::Parquet),
            RowFormat::Tsv => Some(TableFormat::Tsv),
            RowFormat::Csv => Some(TableFormat::Csv),
        };
        if let Some(format) = table {
            let columns: Vec<usize> = (0..layout.keys()).chain([layout.keys() + place]).collect();
            let schema = layout.schema().project(&columns);
            let schema =
                schema.map_err(|error| DatasetError::content(config.out, error.to_string()))?;
            return Ok(Self::Table(TableWriter::create(
                matrix,
                &schema.into(),
                format,
                [],
            )?));
        }
        matrix.append(&header(parts, rows))?;
        Ok(Self::Matrix {
            matrix,
            ids: create(&ids_beside(config.out))?,
            column: layout.columns[place].to_string(),
            dtype: layout.dtype,
        })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<(), DatasetError> {
        match self {
            Self::Matrix {
                matrix,
                ids,
                column,
                dtype,
            } => {
                matrix.append(bytes(&rows[&**column], *dtype))?;
                ids.append(lines(rows).as_bytes())?;
            }
            Self::Table(table) => table.write(rows)?,
        }
        Ok(())
    }

    /// Publishes the files, the ids first. A run that is killed then leaves ids without a matrix: no matrix is ever beside other ids.
    fn finish(self, config: &VectorsConfig<'_>) -> Result<(), DatasetError> {
        match self {
            Self::Matrix {
                mut matrix,
                mut ids,
                ..
            } => {
                matrix.sync()?;
                ids.sync()?;
                if config.force {
                    remove_published(config.out)?;
                }
                ids.finish()?;
                matrix.finish()?;
            }
            Self::Table(table) => table.finish()?,
        }
        Ok(())
    }
}

/// Returns the ids of some rows, one a line.
fn lines(batch: &RecordBatch) -> String {
    let names = batch["id"].as_string::<i32>().iter().flatten();
    names.flat_map(|id| [id, "\n"]).collect()
}

/// The header of a matrix with so many rows.
///
/// Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
fn header(parts: &Parts, rows: u64) -> Vec<u8> {
    let descr = match parts.layout.dtype {
        StoreDtype::F32 => "<f4",
        StoreDtype::F16 => "<f2",
    };
    let dim = parts.layout.dim;
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    // Values begin at a multiple of 64.
    let head = 10;
    let length = (head + text.len() + 1).next_multiple_of(64) - head;
    text.extend(std::iter::repeat_n(' ', length - 1 - text.len()));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\0".to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}
