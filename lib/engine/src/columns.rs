//! Laying out computed values as the columns of an embeddings file.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float16Array, Float32Array, ListArray, RecordBatch, StringArray,
    UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_buffer::{ArrowNativeType, ToByteSlice};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take;
use bytes::Bytes;
use half::f16;
use half::slice::HalfFloatSliceExt;
use plmkit_contract::{
    AMINO_ACIDS, Column, EmbeddingLayout, KEY_COLUMNS, SequenceDigest, StoreDtype, residue_of,
};
use plmkit_esm2::{Buffer, Buffers};
use plmkit_store::PackedBatch;

use crate::scores::{amino_acid_logits, log_likelihood, log_probs};

/// The most bytes of the values of a row: those of a Parquet page, without room for what else is in it.
pub(crate) const ROW_BYTES: usize = (1 << 31) - (1 << 24);

/// A protein that was stitched of windows.
#[derive(Debug, PartialEq)]
pub(crate) struct Stitched {
    /// The letter of each residue.
    pub(crate) letters: Vec<u8>,
    pub(crate) n_windows: u32,
    /// The values of each source, until they are among those of all rows.
    pub(crate) values: Vec<Vec<f32>>,
}

/// Makes the columns of the output of the values that a model computed.
pub(crate) struct ColumnWriter {
    /// The [sources](crate::scores::sources) of the columns of the output.
    pub(crate) sources: Vec<Column>,
    /// The number of values in the logits of a residue.
    pub(crate) logits: usize,
    /// Memory for f16 values.
    pub(crate) halves: Buffers<f16>,
}

impl ColumnWriter {
    /// Makes a record batch of `rows` of a batch. A protein that was stitched has the key of its last window. `values` has for each
    /// of the sources the values of all rows, one after the other.
    pub(crate) fn lay_out(
        &self,
        layout: &EmbeddingLayout,
        packed: &PackedBatch,
        rows: &[(usize, Option<Stitched>)],
        values: Vec<Buffer<f32>>,
    ) -> Result<RecordBatch, ArrowError> {
        let mut arrays = key_columns(layout, packed, rows)?;
        let mut values: Vec<_> = self.sources.iter().copied().zip(values).collect();
        let mut likelihood = None;
        if layout.columns.contains(&Column::LogProbs) {
            let log_probs = self.log_probs(&values);
            likelihood = Some(likelihoods(packed, rows, &log_probs));
            // Before the logits of masked residues.
            values.insert(0, (Column::LogProbs, log_probs));
        }
        let schema = layout.schema();
        for (&column, field) in layout.columns.iter().zip(&schema.fields()[layout.keys()..]) {
            if column == Column::LogLikelihood {
                arrays.extend(likelihood.take());
                continue;
            }
            let lengths = rows.iter().map(|(row, stitched)| {
                let residues = match stitched {
                    Some(protein) => protein.letters.len(),
                    None => packed.residues(*row),
                };
                match column {
                    Column::Contacts => residues * residues,
                    _ => residues,
                }
            });
            let computed = values.iter_mut().find(|(source, _)| *source == column);
            let values = computed.map_or_else(Buffer::default, |(_, values)| mem::take(values));
            arrays.push(self.array(field.data_type(), layout.dtype, lengths, values)?);
        }
        RecordBatch::try_new(Arc::clone(&schema), arrays)
    }

    /// Returns the log-probabilities of all rows.
    fn log_probs(&self, values: &[(Column, Buffer<f32>)]) -> Buffer<f32> {
        let computed = |column| values.iter().find(|(source, _)| *source == column);
        match (computed(Column::LogProbs), computed(Column::Logits)) {
            (Some((_, masked)), _) => log_probs(masked.as_chunks().0.iter().copied()).into(),
            (None, Some((_, logits))) => {
                let residues = logits.chunks_exact(self.logits);
                log_probs(residues.map(amino_acid_logits)).into()
            }
            (None, None) => Buffer::default(),
        }
    }

    /// Makes an array of type `kind` from `values`, stored as `dtype`. The rows of a list array have `lengths` items.
    fn array(
        &self,
        kind: &DataType,
        dtype: StoreDtype,
        lengths: impl Iterator<Item = usize>,
        values: Buffer<f32>,
    ) -> Result<ArrayRef, ArrowError> {
        Ok(match kind {
            DataType::List(item) => {
                let items = self.array(item.data_type(), dtype, std::iter::empty(), values)?;
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, None)?)
            }
            DataType::FixedSizeList(item, dim) => {
                let items = self.array(item.data_type(), dtype, std::iter::empty(), values)?;
                let item = Arc::clone(item);
                Arc::new(FixedSizeListArray::try_new(item, *dim, items, None)?)
            }
            _ => match dtype {
                StoreDtype::F32 => {
                    Arc::new(Float32Array::new(into_arrow_buffer(values).into(), None))
                }
                StoreDtype::F16 => {
                    let mut narrow = self.halves.take(values.len());
                    narrow.convert_from_f32_slice(&values);
                    Arc::new(Float16Array::new(into_arrow_buffer(narrow).into(), None))
                }
            },
        })
    }
}

/// Makes the column of the mean log-probabilities, which rows without any of the twenty amino acids lack.
fn likelihoods(
    packed: &PackedBatch,
    rows: &[(usize, Option<Stitched>)],
    log_probs: &[f32],
) -> ArrayRef {
    let mut left = log_probs;
    let likelihoods = rows.iter().map(|(row, stitched)| {
        let letters = match stitched {
            Some(protein) => Cow::Borrowed(&protein.letters),
            None => Cow::Owned(letters(packed, *row)),
        };
        let of_row;
        (of_row, left) = left.split_at(letters.len() * AMINO_ACIDS.len());
        log_likelihood(letters.iter().copied(), of_row)
    });
    Arc::new(likelihoods.collect::<Float32Array>())
}

/// The letter of each residue of a row.
fn letters(packed: &PackedBatch, row: usize) -> Vec<u8> {
    let tokens = packed.residue_tokens(row).iter();
    tokens
        .map(|&token| residue_of(token).unwrap_or(b'X'))
        .collect()
}

/// Returns the key columns and labels.
fn key_columns(
    layout: &EmbeddingLayout,
    packed: &PackedBatch,
    rows: &[(usize, Option<Stitched>)],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let indices = UInt64Array::from_iter_values(rows.iter().map(|&(row, _)| row as u64));
    let of_batch = |name: &str| take(&packed.record_batch()[name], &indices, None);
    let key = |name| -> Result<ArrayRef, ArrowError> {
        Ok(match name {
            // Rows that are not windows start at 0, too.
            "start" if layout.stitched => Arc::new(UInt32Array::from(vec![0; rows.len()])),
            "sequence_digest" if layout.stitched => {
                Arc::new(digests(of_batch(name)?.as_string(), rows))
            }
            _ => of_batch(name)?,
        })
    };
    let mut keys = KEY_COLUMNS
        .into_iter()
        .map(key)
        .collect::<Result<Vec<_>, _>>()?;
    if layout.stitched {
        let windows = rows.iter().map(|(_, stitched)| match stitched {
            Some(protein) => protein.n_windows,
            None => 1,
        });
        keys.push(Arc::new(UInt32Array::from_iter_values(windows)));
    }
    for field in layout.labels.fields() {
        keys.push(of_batch(field.name())?);
    }
    Ok(keys)
}

/// Returns the sequence digests of the rows. A stitched row has that of the whole protein.
fn digests(batch_digests: &StringArray, rows: &[(usize, Option<Stitched>)]) -> StringArray {
    let digests = batch_digests.iter().flatten().zip(rows);
    let digests = digests.map(|(digest, (_, stitched))| match stitched {
        Some(protein) => SequenceDigest::new(&protein.letters).to_string().into(),
        None => Cow::Borrowed(digest),
    });
    StringArray::from_iter_values(digests)
}

/// Makes an Arrow buffer without copying. The memory returns to its pool when the last array is dropped.
fn into_arrow_buffer<T: ArrowNativeType>(buffer: Buffer<T>) -> arrow_buffer::Buffer {
    Bytes::from_owner(Owner(buffer)).into()
}

struct Owner<T>(Buffer<T>);

impl<T: ArrowNativeType> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.to_byte_slice()
    }
}
