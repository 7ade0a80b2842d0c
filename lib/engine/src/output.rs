//! What was computed, as columns of an embeddings file.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, FixedSizeListArray, Float16Array, Float32Array, ListArray, RecordBatch,
    StringArray, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{ArrowNativeType, DataType, SchemaRef, ToByteSlice};
use arrow::error::ArrowError;
use bytes::Bytes;
use half::f16;
use half::slice::HalfFloatSliceExt;
use plmkit_contract::{Column, EmbeddingLayout, KEY_COLUMNS, Reason, StoreDtype};
use plmkit_esm2::{Buffer, Buffers};
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

/// Lays results out as the columns of an embeddings file.
pub(crate) struct Columns<'a> {
    layout: &'a EmbeddingLayout,
    schema: SchemaRef,
    /// Where values lie in the type in which they are stored, if that is not the one in which they come.
    halves: Option<Buffers<f16>>,
}

impl<'a> Columns<'a> {
    pub(crate) fn new(layout: &'a EmbeddingLayout) -> Self {
        Self {
            schema: layout.schema(),
            halves: (layout.dtype == StoreDtype::F16).then(Buffers::default),
            layout,
        }
    }

    pub(crate) fn layout(&self) -> &'a EmbeddingLayout {
        self.layout
    }

    /// What became of `pack`.
    pub(crate) fn lay(
        &self,
        pack: &PackedBatch,
        mut embedded: Embedded,
    ) -> Result<Laid, ArrowError> {
        Ok(Laid {
            rejected: std::mem::take(&mut embedded.rejected),
            oom_splits: embedded.oom_splits,
            in_f32: embedded.in_f32,
            rows: self.rows(pack, embedded)?,
        })
    }

    /// The rows of `pack` that have vectors.
    fn rows(&self, pack: &PackedBatch, embedded: Embedded) -> Result<RecordBatch, ArrowError> {
        let mut arrays = keys(self.layout, pack, &embedded.rows)?;
        let fields = &self.schema.fields()[self.layout.keys()..];
        let columns = self.layout.columns.iter().zip(embedded.values);
        for ((&column, values), field) in columns.zip(fields) {
            let lengths = embedded.rows.iter().map(|row| match column {
                Column::Contacts => row.residues * row.residues,
                _ => row.residues,
            });
            arrays.push(self.array(field.data_type(), lengths, values)?);
        }
        RecordBatch::try_new(SchemaRef::clone(&self.schema), arrays)
    }

    /// `values` as an array of type `kind`, whose rows have so many items where it is one of lists.
    fn array(
        &self,
        kind: &DataType,
        lengths: impl Iterator<Item = usize>,
        values: Buffer<f32>,
    ) -> Result<ArrayRef, ArrowError> {
        Ok(match kind {
            DataType::List(item) => {
                let items = self.array(item.data_type(), std::iter::empty(), values)?;
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, None)?)
            }
            DataType::FixedSizeList(item, dim) => {
                let items = self.array(item.data_type(), std::iter::empty(), values)?;
                Arc::new(FixedSizeListArray::try_new(
                    Arc::clone(item),
                    *dim,
                    items,
                    None,
                )?)
            }
            _ => match &self.halves {
                None => Arc::new(Float32Array::new(shared(values).into(), None)),
                Some(halves) => {
                    let mut narrow = halves.take(values.len());
                    narrow.convert_from_f32_slice(&values);
                    Arc::new(Float16Array::new(shared(narrow).into(), None))
                }
            },
        })
    }
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
            "sequence_digest" if whole => Arc::new(digests(column.as_string(), rows)),
            _ => Arc::clone(column),
        });
    }
    if layout.stitched {
        let windows = rows.iter().map(|row| &row.stitched);
        let windows = windows.map(|stitched| stitched.as_ref().map_or(1, |whole| whole.n_windows));
        keys.push(Arc::new(UInt32Array::from_iter_values(windows)));
    }
    keys.extend(
        layout
            .labels
            .fields()
            .map(|field| Arc::clone(&kept[field.name().as_str()])),
    );
    Ok(keys)
}

/// The digests of the rows: of those put together, that of the whole protein.
fn digests(of_pack: &StringArray, rows: &[OutputRow]) -> StringArray {
    let digests = of_pack.iter().flatten().zip(rows);
    let digests = digests.map(|(digest, row)| match &row.stitched {
        Some(whole) => whole.digest.to_string().into(),
        None => Cow::Borrowed(digest),
    });
    StringArray::from_iter_values(digests)
}

/// A buffer for arrays. It goes back to where it came from when they are gone.
pub(crate) fn shared<T: ArrowNativeType>(buffer: Buffer<T>) -> arrow::buffer::Buffer {
    Bytes::from_owner(Owner(buffer)).into()
}

struct Owner<T>(Buffer<T>);

impl<T: ArrowNativeType> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.to_byte_slice()
    }
}
