//! What was computed, as columns of an embeddings file.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeListArray, Float16Array, Float32Array,
    ListArray, RecordBatch, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use half::slice::HalfFloatSliceExt;
use plmkit_contract::{Column, EmbeddingLayout, KEY_COLUMNS, Reason, StoreDtype};
use plmkit_store::PackedBatch;

use crate::pack::{Embedded, OutputRow};

/// What became of a pack, its rows laid out as columns.
#[derive(Debug)]
pub(crate) struct Laid {
    pub(crate) rows: RecordBatch,
    /// The rows of the pack that would give a row of the output and have no values, rising.
    pub(crate) rejected: Vec<(usize, Reason)>,
    /// How many times sequences were computed in two halves because memory ran out.
    pub(crate) oom_splits: u64,
    /// How many sequences were computed again in f32.
    pub(crate) in_f32: u64,
}

impl Laid {
    /// `schema` is that of `layout`.
    pub(crate) fn new(
        schema: &SchemaRef,
        layout: &EmbeddingLayout,
        pack: &PackedBatch,
        mut embedded: Embedded,
    ) -> Result<Self, ArrowError> {
        Ok(Self {
            rejected: std::mem::take(&mut embedded.rejected),
            oom_splits: embedded.oom_splits,
            in_f32: embedded.in_f32,
            rows: rows(schema, layout, pack, embedded)?,
        })
    }
}

/// The rows of `pack` that have vectors. `schema` is that of `layout`.
fn rows(
    schema: &SchemaRef,
    layout: &EmbeddingLayout,
    pack: &PackedBatch,
    embedded: Embedded,
) -> Result<RecordBatch, ArrowError> {
    let mut arrays = keys(layout, pack, &embedded.rows)?;
    let fields = &schema.fields()[layout.keys()..];
    for ((&column, values), field) in layout.columns.iter().zip(embedded.values).zip(fields) {
        let lengths = embedded.rows.iter().map(|row| match column {
            Column::Contacts => row.residues * row.residues,
            _ => row.residues,
        });
        arrays.push(array(field.data_type(), layout.dtype, lengths, values)?);
    }
    RecordBatch::try_new(SchemaRef::clone(schema), arrays)
}

/// The columns before those that a model computed.
fn keys(
    layout: &EmbeddingLayout,
    pack: &PackedBatch,
    rows: &[OutputRow],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let kept = if rows.len() == pack.sequences() {
        pack.record_batch().clone()
    } else {
        let mut kept = vec![false; pack.sequences()];
        for row in rows {
            kept[row.row] = true;
        }
        filter_record_batch(pack.record_batch(), &kept.into())?
    };
    let whole = rows.iter().any(|row| row.stitched.is_some());
    let mut keys: Vec<ArrayRef> = Vec::with_capacity(layout.keys());
    for name in KEY_COLUMNS {
        let column = &kept[name];
        keys.push(match name {
            // Rows that are not windows start at 0, too.
            "start" if whole => Arc::new(UInt32Array::from(vec![0; rows.len()])),
            "digest" if whole => Arc::new(digests(column.as_fixed_size_binary(), rows)?),
            _ => Arc::clone(column),
        });
    }
    if layout.stitched {
        let windows = rows.iter().map(|row| &row.stitched);
        let windows = windows.map(|stitched| stitched.as_ref().map_or(1, |whole| whole.n_windows));
        keys.push(Arc::new(UInt32Array::from_iter_values(windows)));
    }
    Ok(keys)
}

/// The digests of the rows: of those put together, that of the whole protein.
fn digests(
    of_pack: &FixedSizeBinaryArray,
    rows: &[OutputRow],
) -> Result<FixedSizeBinaryArray, ArrowError> {
    let digests = of_pack.iter().flatten().zip(rows);
    FixedSizeBinaryArray::try_from_iter(digests.map(|(digest, row)| match &row.stitched {
        Some(whole) => &whole.digest[..],
        None => digest,
    }))
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
