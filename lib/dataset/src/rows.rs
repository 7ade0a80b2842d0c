//! Rows in one file: embeddings as they are, or a column of vectors for other programs, as a matrix of numpy or a table of text.

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{ArrayRef, RecordBatch};
use plmkit_contract::{ByteDigest, COMBINED, Kind, Provenance, StoreDtype};
use plmkit_kit::Stop;
use plmkit_store::{
    AtomicFile, EmbeddingsWriter, StoreError, TableFormat, TableWriter, identify, remove_published,
    verify,
};
use serde_json::json;
use strum::{Display, EnumMessage, EnumString, VariantArray};

use crate::{AskedIds, Dataset, DatasetError, Merge};

/// Which rows are written, and how.
#[derive(Clone, Copy, Debug)]
pub struct RowsConfig<'a> {
    pub format: RowFormat,
    /// The column of vectors, if several have one vector for each protein.
    pub column: Option<&'a str>,
    /// The ids of the rows; all rows by default.
    pub ids: Option<&'a AskedIds>,
    /// The file to write.
    pub out: &'a Path,
    /// Whether to replace other files.
    pub force: bool,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, VariantArray, EnumMessage, EnumString)]
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

/// Writes rows in the order of the input. Returns their number, and whether embeddings of the same rows were there already. `advance`
/// is told the rows as they are written. Memory does not grow with the rows.
///
/// # Errors
/// If a column of vectors has not one for each protein, or is not named where there are several; if ids have no rows.
pub fn write_rows(
    dataset: &Dataset,
    config: &RowsConfig<'_>,
    mut advance: impl FnMut(u64),
    stop: &Stop,
) -> Result<(u64, bool), DatasetError> {
    let (ids, layout) = (config.ids, dataset.layout());
    let merge = |columns: &[usize]| {
        let merge = Merge::new(&dataset.parts, columns.iter().copied(), stop);
        match ids {
            Some(ids) => merge.of_ids(ids),
            None => merge,
        }
    };
    if config.format == RowFormat::Parquet {
        let provenance = provenance(dataset, ids);
        let kind = Kind::Embeddings;
        let difference = |found: &Provenance| found.difference(&provenance);
        if !config.force && identify(config.out, kind, difference)?.is_some() {
            return Ok((verify(config.out, kind, stop)?.rows(), true));
        }
        let mut writer = EmbeddingsWriter::create(config.out, layout)?;
        let mut merge = merge(&dataset.places(&[])?);
        while let Some(rows) = merge.next_rows()? {
            writer.write(&rows)?;
            advance(rows.num_rows() as u64);
        }
        ids.map_or(Ok(()), |ids| dataset.check_found(ids, stop))?;
        return Ok((writer.finish(&provenance)?.rows(), false));
    }
    let place = dataset.column_index(config.column)?;
    let mut expected = dataset.rows();
    if let Some(ids) = ids {
        let mut keys = merge(&[]);
        expected = 0;
        while let Some(rows) = keys.next_rows()? {
            expected += rows.num_rows() as u64;
        }
        dataset.check_found(ids, stop)?;
    }
    let mut merge = merge(&[place]);
    let mut each = |write: &mut dyn FnMut(&RecordBatch) -> Result<(), StoreError>| {
        let mut rows = 0;
        while let Some(batch) = merge.next_rows()? {
            write(&batch)?;
            rows += batch.num_rows() as u64;
            advance(batch.num_rows() as u64);
        }
        if rows == expected {
            return Ok(());
        }
        let what = format!("expected {expected} rows, as the metadata say, found {rows}");
        Err(DatasetError::content(&dataset.parts[0].path, what))
    };
    let create =
        |path: &Path| Ok::<_, StoreError>(AtomicFile::create(path)?.keeping(!config.force));
    let file = create(config.out)?;
    if config.format == RowFormat::Npy {
        let (mut matrix, mut ids) = (file, create(&ids_beside(config.out))?);
        matrix.append(&header(layout.dtype, expected, layout.dim))?;
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
        return Ok((expected, false));
    }
    let columns: Vec<usize> = (0..layout.keys()).chain([layout.keys() + place]).collect();
    let schema = layout.schema().project(&columns);
    let schema = schema.map_err(|error| DatasetError::content(config.out, error))?;
    let format = match config.format {
        RowFormat::Csv => TableFormat::Csv,
        _ => TableFormat::Tsv,
    };
    let mut table = TableWriter::create(file, &schema.into(), format, [])?;
    each(&mut |batch| table.write(batch))?;
    table.finish()?;
    Ok((expected, false))
}

/// The provenance of the rows of these ids.
fn provenance(dataset: &Dataset, ids: Option<&AskedIds>) -> Provenance {
    let mut sorted: Vec<&String> = ids.iter().flat_map(|ids| ids.in_order()).collect();
    sorted.sort_unstable();
    let digest = dataset.digest().to_string();
    let mut work = vec![json!(digest), json!(sorted)];
    // The order of samples decides their ordinals.
    let parts = dataset.parts.iter().filter(|part| part.offset > 0);
    work.extend(parts.map(|part| json!([part.digest.to_string(), part.offset])));
    let work = ByteDigest::compute(json!(work).to_string().as_bytes());
    Provenance {
        inputs: vec![digest],
        rejects: None,
        ..dataset.provenance()
    }
    .with(COMBINED, work.to_string())
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

/// The header of a matrix of this shape.
///
/// Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
fn header(dtype: StoreDtype, rows: u64, dim: usize) -> Vec<u8> {
    let descr = match dtype {
        StoreDtype::F32 => "<f4",
        StoreDtype::F16 => "<f2",
    };
    let text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    // Values begin at a multiple of 64.
    let head = 10;
    let length = (head + text.len() + 1).next_multiple_of(64) - head;
    let mut header = b"\x93NUMPY\x01\0".to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{text:<0$}\n", length - 1).as_bytes());
    header
}
