//! Matrices of numpy.

use std::path::PathBuf;

use arrow::array::AsArray;
use plmkit_contract::StoreDtype;
use plmkit_store::AtomicFile;

use super::values::Table;
use crate::DatasetError;

/// Writes a matrix `(rows, dim)`, and a text file with one id a line.
///
/// Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
pub(crate) fn write(
    table: &Table<'_>,
    files: &[PathBuf],
    advance: &mut impl FnMut(u64),
) -> Result<(), DatasetError> {
    let [matrix, ids] = files else { return Ok(()) };
    let mut matrix = AtomicFile::create(matrix)?;
    let mut ids = AtomicFile::create(ids)?;
    matrix.append(&header(table))?;
    let name = table.name(table.columns[0]);
    table.for_each(advance, |batch| {
        matrix.append(&table.bytes(batch, &batch[&*name])?)?;
        let names = batch["id"].as_string::<i32>().iter().flatten();
        let lines: String = names.flat_map(|id| [id, "\n"]).collect();
        Ok(ids.append(lines.as_bytes())?)
    })?;
    ids.finish()?;
    Ok(matrix.finish()?)
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
