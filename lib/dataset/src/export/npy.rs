//! Matrices of numpy.

use std::path::PathBuf;

use arrow::array::{AsArray, RecordBatch};
use plmkit_contract::StoreDtype;
use plmkit_store::{AtomicFile, remove_published};

use super::values::Table;
use crate::DatasetError;

/// Writes a matrix `(rows, dim)`, and a text file with one id a line. `force` replaces other files.
///
/// The ids are published first. A run that is killed then leaves ids without a matrix: no matrix is ever beside other ids.
///
/// Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
pub(crate) fn write(
    table: &Table<'_>,
    files: &[PathBuf],
    force: bool,
    advance: &mut impl FnMut(u64),
) -> Result<(), DatasetError> {
    let [matrix_path, ids_path] = files else {
        return Ok(());
    };
    let [mut matrix, mut ids] = [
        AtomicFile::create(matrix_path)?.keeping(!force),
        AtomicFile::create(ids_path)?.keeping(!force),
    ];
    matrix.append(&header(table))?;
    let name = table.name(table.columns[0]);
    table.for_each(advance, |batch| {
        matrix.append(&table.bytes(batch, &batch[&*name])?)?;
        Ok(ids.append(lines(batch).as_bytes())?)
    })?;
    matrix.sync()?;
    ids.sync()?;
    if force {
        remove_published(matrix_path)?;
    }
    ids.finish()?;
    Ok(matrix.finish()?)
}

/// The ids of some rows, one a line.
fn lines(batch: &RecordBatch) -> String {
    let names = batch["id"].as_string::<i32>().iter().flatten();
    names.flat_map(|id| [id, "\n"]).collect()
}

fn header(table: &Table<'_>) -> Vec<u8> {
    let descr = match table.dtype {
        StoreDtype::F32 => "<f4",
        StoreDtype::F16 => "<f2",
    };
    let (rows, dim) = (table.parts.rows(), table.parts.layout.dim);
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
