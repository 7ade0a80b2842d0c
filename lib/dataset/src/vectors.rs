//! Columns of vectors.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use plmkit_contract::{Column, Dtype};
use plmkit_cpu::widen;

use crate::{DatasetError, Parts};

/// Returns the place of a column with one vector for each protein: that with the name, or the only one.
pub(crate) fn place_of(parts: &Parts, column: Option<&str>) -> Result<usize, DatasetError> {
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
