//! Vectors as columns of an embeddings file.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray, Float16Array, Float32Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Float16Type, SchemaRef};
use arrow::error::ArrowError;
use half::slice::HalfFloatSliceExt;
use plmkit_contract::{KEY_COLUMNS, StoreDtype};
use plmkit_store::PackedBatch;

use crate::compute::Embedded;

/// The rows of `pack` with their vectors, without the sequences that have none.
pub(crate) fn rows(
    schema: &SchemaRef,
    dtype: StoreDtype,
    pack: &PackedBatch,
    embedded: Embedded,
) -> Result<RecordBatch, ArrowError> {
    let keys = if embedded.rejected.is_empty() {
        pack.record_batch().clone()
    } else {
        let mut kept = vec![true; pack.sequences()];
        for &(row, _) in &embedded.rejected {
            kept[row] = false;
        }
        filter_record_batch(pack.record_batch(), &kept.into())?
    };
    let mut columns: Vec<ArrayRef> = KEY_COLUMNS
        .iter()
        .map(|name| Arc::clone(&keys[*name]))
        .collect();
    for (values, field) in embedded
        .vectors
        .into_iter()
        .zip(&schema.fields()[KEY_COLUMNS.len()..])
    {
        columns.push(Arc::new(column(field, dtype, values)?));
    }
    RecordBatch::try_new(SchemaRef::clone(schema), columns)
}

fn column(
    field: &Field,
    dtype: StoreDtype,
    values: Vec<f32>,
) -> Result<FixedSizeListArray, ArrowError> {
    let DataType::FixedSizeList(item, dim) = field.data_type() else {
        return Err(ArrowError::SchemaError(format!(
            "'{}' is no vector",
            field.name()
        )));
    };
    let values: ArrayRef = match dtype {
        StoreDtype::F32 => Arc::new(Float32Array::from(values)),
        StoreDtype::F16 => {
            let mut narrow = vec![half::f16::ZERO; values.len()];
            narrow.convert_from_f32_slice(&values);
            Arc::new(
                Float16Array::from_iter_values(narrow) as arrow::array::PrimitiveArray<Float16Type>
            )
        }
    };
    FixedSizeListArray::try_new(Arc::clone(item), *dim, values, None)
}
