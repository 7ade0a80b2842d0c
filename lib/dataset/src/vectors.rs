//! Columns of vectors.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use plmkit_contract::Dtype;
use plmkit_cpu::widen;

/// The values of a column of a verified embeddings file in f32, which is exact.
#[derive(Debug)]
pub struct Vectors {
    pub(crate) values: ScalarBuffer<f32>,
    /// The values of a vector.
    width: usize,
    /// Of lists, where the vectors of each row begin, and where the last one ends. Without lists, each row has one.
    offsets: Option<OffsetBuffer<i32>>,
}

impl Vectors {
    /// Takes a column of a batch: values or vectors, or lists of them.
    pub fn new(column: &dyn Array) -> Self {
        let list = column.as_list_opt::<i32>();
        let items = list.map_or(column, |list| &**list.values());
        let (values, width) = match items.as_fixed_size_list_opt() {
            Some(vectors) => (&**vectors.values(), vectors.value_length() as usize),
            None => (items, 1),
        };
        let values = match values.as_primitive_opt::<Float16Type>() {
            None => values.as_primitive::<Float32Type>().values().clone(),
            Some(halves) => {
                let mut wide = vec![0.0; halves.len()];
                widen(Dtype::F16, halves.values().inner(), &mut wide);
                wide.into()
            }
        };
        Self {
            values,
            width,
            offsets: list.map(|list| list.offsets().clone()),
        }
    }

    /// Returns the values of a row.
    pub fn row(&self, row: usize) -> &[f32] {
        let [start, end] = match &self.offsets {
            Some(offsets) => [offsets[row], offsets[row + 1]].map(|offset| offset as usize),
            None => [row, row + 1],
        };
        &self.values[start * self.width..end * self.width]
    }
}
