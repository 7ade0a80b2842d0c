//! What was computed, as columns of an embeddings file.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListArray, Float16Array, Float32Array, ListArray, RecordBatch,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use half::slice::HalfFloatSliceExt;
use plmkit_contract::{Column, EmbeddingLayout, KEY_COLUMNS, StoreDtype};
use plmkit_store::PackedBatch;

use crate::compute::Embedded;

/// The rows of `pack` that have vectors. `schema` is that of `layout`.
pub(crate) fn rows(
    schema: &SchemaRef,
    layout: &EmbeddingLayout,
    pack: &PackedBatch,
    embedded: Embedded,
) -> Result<RecordBatch, ArrowError> {
    let mut kept = vec![true; pack.sequences()];
    for &(row, _) in &embedded.rejected {
        kept[row] = false;
    }
    let keys = if embedded.rejected.is_empty() {
        pack.record_batch().clone()
    } else {
        filter_record_batch(pack.record_batch(), &kept.clone().into())?
    };
    let residues: Vec<usize> = (0..pack.sequences())
        .filter(|&row| kept[row])
        .map(|row| pack.residues(row))
        .collect();
    let mut arrays: Vec<ArrayRef> = KEY_COLUMNS
        .iter()
        .map(|name| Arc::clone(&keys[*name]))
        .collect();
    let fields = &schema.fields()[layout.keys()..];
    for ((&column, values), field) in layout.columns.iter().zip(embedded.values).zip(fields) {
        let lengths = residues.iter().map(|&residues| match column {
            Column::Contacts => residues * residues,
            _ => residues,
        });
        arrays.push(array(field.data_type(), layout.dtype, lengths, values)?);
    }
    RecordBatch::try_new(SchemaRef::clone(schema), arrays)
}

/// `values` as an array of type `kind`, whose rows have so many items where it is one of lists.
fn array(
    kind: &DataType,
    dtype: StoreDtype,
    lengths: impl Iterator<Item = usize>,
    values: Vec<f32>,
) -> Result<ArrayRef, ArrowError> {
    Ok(match kind {
        DataType::List(item) => {
            let items = array(item.data_type(), dtype, std::iter::empty(), values)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, None)?)
        }
        DataType::FixedSizeList(item, dim) => {
            let items = array(item.data_type(), dtype, std::iter::empty(), values)?;
            Arc::new(FixedSizeListArray::try_new(
                Arc::clone(item),
                *dim,
                items,
                None,
            )?)
        }
        _ => match dtype {
            StoreDtype::F32 => Arc::new(Float32Array::from(values)),
            StoreDtype::F16 => {
                let mut narrow = vec![half::f16::ZERO; values.len()];
                narrow.convert_from_f32_slice(&values);
                Arc::new(Float16Array::from(narrow))
            }
        },
    })
}
