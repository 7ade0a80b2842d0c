//! Rows to compute together, and their values. Pure: no model and no file.

use std::collections::BTreeMap;

use plmkit_contract::{Column, MASK, Reason, SPECIAL_TOKENS, StoreDtype, Widths};
use plmkit_esm2::Buffer;

use crate::batch::Batch;
use crate::scores::model_columns;

/// Rows of a batch, or copies of its only row, and what is computed of them.
pub(crate) struct Computation<'b> {
    pub(crate) batch: &'b Batch,
    /// Columns of the model.
    pub(crate) columns: Vec<Column>,
    /// The type in which all values must be finite.
    pub(crate) dtype: StoreDtype,
    /// Whether the numbers of the rows are those of residues, of which each is masked in a copy of the only row.
    pub(crate) is_masked: bool,
    /// For each source, the values of the accepted rows, one after the other.
    pub(crate) values: Vec<Buffer<f32>>,
    /// The rows without values.
    pub(crate) rejected: BTreeMap<usize, Reason>,
}

impl<'b> Computation<'b> {
    pub(crate) fn new(batch: &'b Batch, sources: &[Column], dtype: StoreDtype) -> Self {
        Self {
            batch,
            columns: model_columns(sources).to_vec(),
            dtype,
            is_masked: false,
            values: sources.iter().map(|_| Buffer::default()).collect(),
            rejected: BTreeMap::new(),
        }
    }

    /// Appends the values of a row, one slice for each source.
    pub(crate) fn extend(&mut self, row: &[impl AsRef<[f32]>]) {
        for (source, values) in self.values.iter_mut().zip(row) {
            source.extend_from_slice(values.as_ref());
        }
    }

    /// The row of the batch.
    pub(crate) fn place(&self, row: usize) -> usize {
        if self.is_masked { 0 } else { row }
    }

    pub(crate) fn residues(&self, row: usize) -> usize {
        self.batch.packed.residues(self.place(row))
    }

    pub(crate) fn ordinal(&self, row: usize) -> u64 {
        self.batch.packed.ordinals()[self.place(row)]
    }

    /// Offsets of rows that are laid end to end, starting at 0: `(rows + 1)`.
    pub(crate) fn cu_seqlens(&self, rows: &[usize]) -> Vec<i32> {
        let mut end = 0;
        let ends = rows.iter().map(|&row| {
            end += (self.residues(row) as u32 + SPECIAL_TOKENS).cast_signed();
            end
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// The tokens of rows, end to end.
    pub(crate) fn tokens(&self, rows: &[usize]) -> Vec<u8> {
        let packed = &self.batch.packed;
        let (all, offsets) = (packed.tokens(), packed.cu_seqlens());
        let mut tokens = Vec::new();
        for &row in rows {
            let (first, place) = (tokens.len(), self.place(row));
            tokens.extend_from_slice(&all[offsets[place] as usize..offsets[place + 1] as usize]);
            if self.is_masked {
                // After <cls>.
                tokens[first + 1 + row] = MASK;
            }
        }
        tokens
    }
}

/// The number of tokens that offsets end with.
pub(crate) fn last(cu_seqlens: &[i32]) -> usize {
    cu_seqlens[cu_seqlens.len() - 1] as usize
}

/// Returns where to cut two or more sequences with these offsets, which start at 0. Both sides are non-empty and have nearly the
/// same number of tokens.
pub(crate) fn middle(cu_seqlens: &[i32]) -> usize {
    let sequences = cu_seqlens.len() - 1;
    let half = cu_seqlens[sequences] / 2;
    let cut = cu_seqlens.partition_point(|&offset| offset < half);
    cut.clamp(1, sequences - 1)
}

/// Splits the values of columns by row, given the residues of each. Each item has one slice for each column.
pub(crate) fn split_columns<'v>(
    columns: &[Column],
    widths: Widths,
    values: &'v [Buffer<f32>],
    residues: impl Iterator<Item = usize>,
) -> impl Iterator<Item = Vec<&'v [f32]>> {
    let mut left: Vec<&[f32]> = values.iter().map(|values| &values[..]).collect();
    residues.map(move |residues| {
        let columns = columns.iter().zip(&mut left);
        let slices = columns.map(|(column, left)| {
            let own;
            (own, *left) = left.split_at(column.values(residues, widths));
            own
        });
        slices.collect()
    })
}

/// Whether every value is finite in the type in which it is stored.
pub(crate) fn is_storable(values: &[f32], dtype: StoreDtype) -> bool {
    // The bits of magnitudes compare like the magnitudes. Infinity and NaN come last.
    let limit = match dtype {
        StoreDtype::F32 => f32::INFINITY,
        StoreDtype::F16 => F16_INFINITE,
    };
    let magnitude = |value: &f32| value.to_bits() & !(1 << 31);
    // Without an early exit for each value, the compiler vectorises the loop.
    values.chunks(1024).all(|values| {
        let largest = values.iter().map(magnitude).fold(0, u32::max);
        largest < limit.to_bits()
    })
}

/// The smallest magnitude that f16 rounds to infinity: half a step above its largest value.
const F16_INFINITE: f32 = 65520.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_have_sequences() {
        assert_eq!(middle(&[0, 10, 20, 30, 40]), 2);
        assert_eq!(middle(&[0, 100, 101]), 1);
        assert_eq!(middle(&[0, 1, 101]), 1);
        assert_eq!(middle(&[0, 1, 2, 3, 100]), 3);
    }

    #[test]
    fn values_that_f16_rounds_to_infinity_are_not_storable_in_it() {
        assert!(is_storable(&[70000.0, -1.0], StoreDtype::F32));
        assert!(!is_storable(&[f32::NAN], StoreDtype::F32));
        for value in [
            65519.996,
            65520.0,
            65520.004,
            -65519.996,
            -65520.0,
            -f32::NAN,
            f32::INFINITY,
        ] {
            let finite = half::f16::from_f32(value).is_finite();
            assert_eq!(
                is_storable(&[0.0, value], StoreDtype::F16),
                finite,
                "{value}"
            );
        }
    }
}
