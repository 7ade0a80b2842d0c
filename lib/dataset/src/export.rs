//! A column of vectors in formats of other programs: a matrix of numpy, or a table of text.

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{ArrayRef, RecordBatch};
use plmkit_contract::{Stop, StoreDtype};
use plmkit_store::{AtomicFile, StoreError, TableFormat, TableWriter, remove_published};

use crate::select::Missing;
use crate::vectors::place_of;
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
    let mut merge = Merge::new(parts, [place], stop);
    if let Some((ids, _)) = config.ids {
        merge = merge.of_ids(ids);
    }
    let mut rows = 0;
    let mut each = |write: &mut dyn FnMut(&RecordBatch) -> Result<(), StoreError>| {
        while let Some(batch) = merge.next_rows()? {
            write(&batch)?;
            rows += batch.num_rows() as u64;
            advance(batch.num_rows() as u64);
        }
        if rows == expected {
            return Ok(());
        }
        let what = format!("expected {expected} rows, as the metadata say, found {rows}");
        Err(DatasetError::content(&parts.parts[0].path, what))
    };
    let create =
        |path: &Path| Ok::<_, StoreError>(AtomicFile::create(path)?.keeping(!config.force));
    let file = create(config.out)?;
    let layout = &parts.layout;
    let format = match config.format {
        RowFormat::Npy => None,
        RowFormat::Parquet => Some(TableFormat::Parquet),
        RowFormat::Tsv => Some(TableFormat::Tsv),
        RowFormat::Csv => Some(TableFormat::Csv),
    };
    if let Some(format) = format {
        let columns: Vec<usize> = (0..layout.keys()).chain([layout.keys() + place]).collect();
        let schema = layout.schema().project(&columns);
        let schema = schema.map_err(|error| DatasetError::content(config.out, error))?;
        let mut table = TableWriter::create(file, &schema.into(), format, [])?;
        each(&mut |batch| table.write(batch))?;
        table.finish()?;
        return Ok(expected);
    }
    let (mut matrix, mut ids) = (file, create(&ids_beside(config.out))?);
    matrix.append(&header(parts, expected))?;
    let column = layout.columns[place].to_string();
    each(&mut |batch| {
        matrix.append(bytes(&batch[&*column], layout.dtype))?;
        ids.append(lines(batch).as_bytes())
    })?;
    // The ids first: a run that is killed then leaves ids without a matrix, and no matrix is ever beside other ids.
    matrix.sync()?;
    ids.sync()?;
    if config.force {
        remove_published(config.out)?;
    }
    ids.finish()?;
    matrix.finish()?;
    Ok(expected)
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

/// Returns the stored values of vectors.
fn bytes(vectors: &ArrayRef, dtype: StoreDtype) -> &[u8] {
    let values = vectors.as_fixed_size_list().values();
    match dtype {
        StoreDtype::F16 => values.as_primitive::<Float16Type>().values().inner(),
        StoreDtype::F32 => values.as_primitive::<Float32Type>().values().inner(),
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
