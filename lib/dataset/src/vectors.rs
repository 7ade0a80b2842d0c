//! A column with one vector for each row.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_buffer::ScalarBuffer;
use plmkit_contract::{Column, Dtype, StoreDtype};
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

/// Returns the stored values of vectors.
pub(crate) fn bytes(vectors: &ArrayRef, dtype: StoreDtype) -> &[u8] {
    let values = vectors.as_fixed_size_list().values();
    match dtype {
        StoreDtype::F16 => values.as_primitive::<Float16Type>().values().inner(),
        StoreDtype::F32 => values.as_primitive::<Float32Type>().values().inner(),
    }
    .as_slice()
}

/// Returns the values of vectors in f32, which is exact.
pub(crate) fn in_f32(vectors: &ArrayRef, dtype: StoreDtype) -> ScalarBuffer<f32> {
    let values = vectors.as_fixed_size_list().values();
    match dtype {
        StoreDtype::F32 => values.as_primitive::<Float32Type>().values().clone(),
        StoreDtype::F16 => {
            let mut wide = vec![0.0; values.len()];
            widen(Dtype::F16, bytes(vectors, dtype), &mut wide);
            wide.into()
        }
    }
}
