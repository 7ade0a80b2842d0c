//! The vectors of a record batch in single precision.

use std::borrow::Cow;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float16Type, Float32Type};

/// One vector column.
pub(crate) struct Vectors<'a> {
    /// (rows, dim)
    values: Cow<'a, [f32]>,
    dim: usize,
}

impl<'a> Vectors<'a> {
    /// A vector column of a verified embeddings file: `FixedSizeList` of f32 or f16.
    pub(crate) fn new(column: &'a dyn Array) -> Self {
        let list = column.as_fixed_size_list();
        let dim = list.value_length() as usize;
        let values = match list.values().as_primitive_opt::<Float16Type>() {
            Some(halves) => halves.values().iter().map(|half| half.to_f32()).collect(),
            None => Cow::Borrowed(
                list.values()
                    .as_primitive::<Float32Type>()
                    .values()
                    .as_ref(),
            ),
        };
        Self { values, dim }
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.dim..(row + 1) * self.dim]
    }
}
