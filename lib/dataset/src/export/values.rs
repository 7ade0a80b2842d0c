//! The rows of an export, and the bytes of their values.

use std::borrow::Cow;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float16Type, Float32Type};
use half::f16;
use plmkit_contract::{KeyColumns, Quoted, Stop, StoreDtype};

use crate::{DatasetError, Merge, Parts, Piece};

/// The rows of some columns.
pub(crate) struct Table<'a> {
    pub(crate) parts: &'a Parts,
    /// The places of the computed columns.
    pub(crate) columns: Vec<usize>,
    /// The type of their values.
    pub(crate) dtype: StoreDtype,
    pub(crate) stop: &'a Stop,
}

impl Table<'_> {
    /// Gives all rows to `write`, in the order of the input.
    pub(crate) fn for_each(
        &self,
        advance: &mut impl FnMut(u64),
        mut write: impl FnMut(&RecordBatch) -> Result<(), DatasetError>,
    ) -> Result<(), DatasetError> {
        let columns = self.columns.iter().copied();
        let mut merge = Merge::new(self.parts, columns, None, self.stop);
        let mut rows = 0;
        while let Some(piece) = merge.next(u64::MAX, |_| false)? {
            if let Piece::Rows { rows: batch, .. } = piece {
                write(&batch)?;
                rows += batch.num_rows() as u64;
                advance(batch.num_rows() as u64);
            }
        }
        if rows == self.parts.rows() {
            return Ok(());
        }
        let expected = self.parts.rows();
        let what = format!("expected {expected} rows, as the metadata say, found {rows}");
        Err(DatasetError::content(&self.parts.parts[0].path, what))
    }

    /// Returns the name of a computed column.
    pub(crate) fn name(&self, place: usize) -> String {
        self.parts.layout.columns[place].to_string()
    }

    /// Returns the values of a computed column as bytes of the asked type.
    pub(crate) fn bytes<'b>(
        &self,
        batch: &RecordBatch,
        array: &'b ArrayRef,
    ) -> Result<Cow<'b, [u8]>, DatasetError> {
        let values = values(array);
        let found = match values.data_type() {
            DataType::Float16 => values.as_primitive::<Float16Type>().values().inner(),
            _ => values.as_primitive::<Float32Type>().values().inner(),
        };
        if *values.data_type() == self.dtype.arrow() {
            return Ok(Cow::Borrowed(found.as_slice()));
        }
        Ok(Cow::Owned(match self.dtype {
            StoreDtype::F32 => {
                let values = values.as_primitive::<Float16Type>().values().iter();
                values
                    .flat_map(|value| value.to_f32().to_le_bytes())
                    .collect()
            }
            StoreDtype::F16 => {
                let values = values.as_primitive::<Float32Type>().values();
                let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
                let lost = halves
                    .iter()
                    .zip(values)
                    .position(|(half, value)| half.is_infinite() && value.is_finite());
                if let Some(at) = lost {
                    return Err(self.too_large(
                        batch,
                        at / (values.len() / batch.num_rows().max(1)).max(1),
                        values[at],
                    ));
                }
                halves.iter().flat_map(|half| half.to_le_bytes()).collect()
            }
        }))
    }

    fn too_large(&self, batch: &RecordBatch, row: usize, value: f32) -> DatasetError {
        let key = KeyColumns::new(batch).row(row.min(batch.num_rows() - 1));
        let what = format!(
            "ordinal {} {}: {value} does not fit into f16, whose largest value is 65504; expected --dtype f32",
            key.ordinal,
            Quoted(key.id)
        );
        DatasetError::content(&self.parts.parts[0].path, what)
    }
}

/// The values of a column of vectors, or of lists of values or vectors, without nesting.
fn values(array: &ArrayRef) -> &ArrayRef {
    match array.data_type() {
        DataType::List(_) => values(array.as_list::<i32>().values()),
        DataType::FixedSizeList(..) => values(array.as_fixed_size_list().values()),
        _ => array,
    }
}

/// Returns the items of a row of a list: residues, or pairs of them.
pub(crate) fn items(array: &ArrayRef, row: usize) -> Option<Range<usize>> {
    let offsets = array.as_list_opt::<i32>()?.value_offsets();
    Some(offsets[row] as usize..offsets[row + 1] as usize)
}
