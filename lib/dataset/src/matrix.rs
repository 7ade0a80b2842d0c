//! A column of vectors as a matrix of numpy.

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{ArrayRef, RecordBatch};
use plmkit_contract::{Column, Stop, StoreDtype};
use plmkit_store::{AtomicFile, remove_published};

use crate::{DatasetError, Merge, Parts};

/// Returns the file with the ids of the rows of the matrix `out`.
pub fn ids_beside(out: &Path) -> PathBuf {
    out.with_extension("ids.txt")
}

/// Writes a matrix `(rows, dim)` of the vectors in `column`, in the order of the input, and a text file with one id a line. `advance`
/// is told the rows as they are written. `force` replaces other files. Memory does not grow with the rows.
///
/// The ids are published first. A run that is killed then leaves ids without a matrix: no matrix is ever beside other ids.
///
/// Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
///
/// # Errors
/// If the column has not one vector for each protein, or is not named where there are several.
pub fn write_matrix(
    parts: &Parts,
    column: Option<&str>,
    (out, force): (&Path, bool),
    mut advance: impl FnMut(u64),
    stop: &Stop,
) -> Result<(), DatasetError> {
    let place = place_of(parts, column)?;
    let name = parts.layout.columns[place].to_string();
    let ids_path = ids_beside(out);
    let [mut matrix, mut ids] = [
        AtomicFile::create(out)?.keeping(!force),
        AtomicFile::create(&ids_path)?.keeping(!force),
    ];
    matrix.append(&header(parts))?;
    let mut merge = Merge::new(parts, [place], None, stop);
    let mut rows = 0;
    while let Some(batch) = merge.next_rows()? {
        matrix.append(bytes(&batch[&*name], parts.layout.dtype))?;
        ids.append(lines(&batch).as_bytes())?;
        rows += batch.num_rows() as u64;
        advance(batch.num_rows() as u64);
    }
    if rows != parts.rows() {
        let expected = parts.rows();
        let what = format!("expected {expected} rows, as the metadata say, found {rows}");
        return Err(DatasetError::content(&parts.parts[0].path, what));
    }
    matrix.sync()?;
    ids.sync()?;
    if force {
        remove_published(out)?;
    }
    ids.finish()?;
    Ok(matrix.finish()?)
}

/// Returns the place of a column with one vector for each protein: that with the name, or the only one.
fn place_of(parts: &Parts, column: Option<&str>) -> Result<usize, DatasetError> {
    let columns = &parts.layout.columns;
    let asked: Vec<String> = column.into_iter().map(str::to_owned).collect();
    let mut places = parts.places(&asked)?;
    places.retain(|&place| matches!(columns[place], Column::Pooled { .. }));
    match (places.as_slice(), column) {
        (&[one], _) => Ok(one),
        (_, Some(name)) => Err(DatasetError::Usage(format!(
            "--column {name}: expected a column with one vector for each protein"
        ))),
        (_, None) => {
            let names = columns.iter().map(Column::to_string).collect::<Vec<_>>();
            Err(DatasetError::Usage(format!(
                "expected one column with one vector for each protein, found {}: name it with --column",
                names.join(", ")
            )))
        }
    }
}

/// Returns the values of vectors.
fn bytes(vectors: &ArrayRef, dtype: StoreDtype) -> &[u8] {
    let values = vectors.as_fixed_size_list().values();
    match dtype {
        StoreDtype::F16 => values.as_primitive::<Float16Type>().values().inner(),
        StoreDtype::F32 => values.as_primitive::<Float32Type>().values().inner(),
    }
    .as_slice()
}

/// Returns the ids of some rows, one a line.
fn lines(batch: &RecordBatch) -> String {
    let names = batch["id"].as_string::<i32>().iter().flatten();
    names.flat_map(|id| [id, "\n"]).collect()
}

fn header(parts: &Parts) -> Vec<u8> {
    let descr = match parts.layout.dtype {
        StoreDtype::F32 => "<f4",
        StoreDtype::F16 => "<f2",
    };
    let (rows, dim) = (parts.rows(), parts.layout.dim);
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
