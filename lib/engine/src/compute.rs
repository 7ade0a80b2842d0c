//! From sequences of a batch to vectors: out-of-memory errors and values that are not finite are handled here.

use std::borrow::Cow;
use std::ops::Range;

use plmkit_contract::{Column, Reason, Stop, StoreDtype};
use plmkit_esm2::{Buffer, Dtype, Esm2, ModelOutput, PendingOutput, Varlen};

use crate::EngineError;
use crate::batch::{Batch, BatchStats};
use crate::config::Injection;
use crate::token_limit::TokenLimit;

/// Sequences of a batch that are computed together, and the columns to compute. Sequence 0 is the first of `rows`.
#[derive(Clone, Copy)]
pub(crate) struct Selection<'a> {
    pub(crate) batch: &'a Batch,
    /// Rows of the batch, in ascending order.
    pub(crate) rows: &'a [usize],
    pub(crate) columns: &'a [Column],
    /// The type in which all values must be finite.
    pub(crate) dtype: StoreDtype,
}

impl Selection<'_> {
    fn ordinal(&self, sequence: usize) -> u64 {
        self.batch.packed.ordinals()[self.rows[sequence]]
    }

    fn residues(&self, sequence: usize) -> usize {
        self.batch.packed.residues(self.rows[sequence])
    }

    /// Offsets of the given sequences, starting at 0: `(sequences + 1)`.
    fn cu_seqlens(&self, sequences: &Range<usize>) -> Vec<i32> {
        let offsets = self.batch.packed.cu_seqlens();
        let mut end = 0;
        let ends = self.rows[sequences.clone()].iter().map(|&row| {
            end += offsets[row + 1] - offsets[row];
            end
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Token ids of the given sequences back to back, `(total_tokens)`, and their offsets. Those of a whole batch are not copied.
    fn sequences(&self, sequences: &Range<usize>) -> (Cow<'_, [u8]>, Cow<'_, [i32]>) {
        let packed = &self.batch.packed;
        let (tokens, offsets) = (packed.tokens(), packed.cu_seqlens());
        if sequences.len() == packed.sequences() {
            return (tokens.into(), offsets.into());
        }
        let rows = self.rows[sequences.clone()].iter();
        let ranges = rows.map(|&row| offsets[row] as usize..offsets[row + 1] as usize);
        let own: Vec<u8> = ranges.flat_map(|range| &tokens[range]).copied().collect();
        (own.into(), self.cu_seqlens(sequences).into())
    }
}

/// Computed values of sequences.
#[derive(Debug, Default)]
pub(crate) struct Computed {
    /// For each column, the values of the accepted sequences, one after the other.
    pub(crate) values: Vec<Buffer<f32>>,
    /// The sequences without values, in ascending order.
    pub(crate) rejected: Vec<(usize, Reason)>,
    pub(crate) stats: BatchStats,
}

/// Computes sequences with a model.
///
/// If memory runs out or values are not finite, only the sequences that cannot be computed are rejected.
pub(crate) struct Embedder<'a> {
    pub(crate) model: &'a Esm2,
    pub(crate) stop: &'a Stop,
    pub(crate) injection: &'a Injection,
    pub(crate) limit: TokenLimit,
}

impl Embedder<'_> {
    /// Starts the computation of all selected sequences, if the token limit permits it. A device computes while the program goes
    /// on. [`embed`](Self::embed) takes the output and recovers from its errors.
    pub(crate) fn begin(
        &self,
        selection: Selection<'_>,
    ) -> Option<Result<PendingOutput, EngineError>> {
        let all = 0..selection.rows.len();
        let cu_seqlens = selection.cu_seqlens(&all);
        if all.is_empty() || !self.limit.permits(cu_seqlens[all.end] as usize) {
            return None;
        }
        Some(self.begin_forward(selection, &all, self.model.dtype()))
    }

    /// Returns the values of the selected sequences, from the output that [`begin`](Self::begin) started or from a new
    /// computation. After a requested stop, the error is [`EsmError::Stopped`](plmkit_esm2::EsmError::Stopped).
    pub(crate) fn embed(
        &mut self,
        selection: Selection<'_>,
        begun: Option<Result<ModelOutput, EngineError>>,
    ) -> Result<Computed, EngineError> {
        let mut computed = Computed::default();
        let columns = selection.columns.len();
        computed.values.resize_with(columns, Buffer::default);
        let all = 0..selection.rows.len();
        if !all.is_empty() {
            self.compute(selection, all, begun, &mut computed)?;
        }
        Ok(computed)
    }

    /// Computes some of the sequences, in halves if they do not fit in memory together.
    fn compute(
        &mut self,
        selection: Selection<'_>,
        sequences: Range<usize>,
        begun: Option<Result<ModelOutput, EngineError>>,
        computed: &mut Computed,
    ) -> Result<(), EngineError> {
        let cu_seqlens = selection.cu_seqlens(&sequences);
        let tokens = cu_seqlens[sequences.len()] as usize;
        let too_large = begun.is_none() && sequences.len() > 1 && !self.limit.permits(tokens);
        if !too_large {
            let output =
                begun.unwrap_or_else(|| self.forward(selection, &sequences, self.model.dtype()));
            match output {
                Ok(output) => {
                    self.limit.record_success(tokens);
                    return self.keep_finite(selection, sequences, output, computed);
                }
                Err(EngineError::Model(error)) if error.is_out_of_memory() => {}
                Err(error) => return Err(error),
            }
            if sequences.len() == 1 {
                let rejected = (sequences.start, Reason::OutOfMemory);
                computed.rejected.push(rejected);
                return Ok(());
            }
            self.limit.record_failure(tokens);
            self.model.release()?;
            computed.stats.oom_splits += 1;
        }
        let middle = sequences.start + middle(&cu_seqlens);
        self.compute(selection, sequences.start..middle, None, computed)?;
        self.compute(selection, middle..sequences.end, None, computed)
    }

    /// Computes some of the sequences in one type.
    fn forward(
        &self,
        selection: Selection<'_>,
        sequences: &Range<usize>,
        dtype: Dtype,
    ) -> Result<ModelOutput, EngineError> {
        Ok(self.begin_forward(selection, sequences, dtype)?.finish()?)
    }

    /// Starts the computation of some of the sequences in one type.
    fn begin_forward(
        &self,
        selection: Selection<'_>,
        sequences: &Range<usize>,
        dtype: Dtype,
    ) -> Result<PendingOutput, EngineError> {
        let ordinals = sequences.clone().map(|row| selection.ordinal(row));
        self.injection.maybe_fail(ordinals);
        let (tokens, cu_seqlens) = selection.sequences(sequences);
        self.injection.check_memory(tokens.len())?;
        let batch = Varlen::new(&tokens, &cu_seqlens);
        let batch = batch.map_err(|error| selection.batch.error(error))?;
        let model = self.model;
        Ok(model.begin(batch, selection.columns, dtype, self.stop)?)
    }

    /// Appends the values of the sequences whose values are all finite. Computes each of the others again in f32, if the model's
    /// own type has a smaller range.
    fn keep_finite(
        &self,
        selection: Selection<'_>,
        sequences: Range<usize>,
        output: ModelOutput,
        computed: &mut Computed,
    ) -> Result<(), EngineError> {
        computed.stats.add_device_times(output.times);
        let values = output.columns;
        let all_finite = self
            .by_sequence(selection, sequences.clone(), &values)
            .all(|(sequence, own)| self.is_finite(selection, sequence, &own));
        if all_finite && computed.values.iter().all(|values| values.is_empty()) {
            computed.values = values;
            return Ok(());
        }
        for (sequence, own) in self.by_sequence(selection, sequences, &values) {
            if self.is_finite(selection, sequence, &own) {
                extend_columns(&mut computed.values, &own);
            } else if let Err(reason) = self.compute_in_f32(selection, sequence, computed)? {
                computed.rejected.push((sequence, reason));
            }
        }
        Ok(())
    }

    /// Computes a sequence again in f32. The inner error is the reason for a rejection.
    fn compute_in_f32(
        &self,
        selection: Selection<'_>,
        sequence: usize,
        computed: &mut Computed,
    ) -> Result<Result<(), Reason>, EngineError> {
        // int8 has scales in f32, and so the range of f32.
        if matches!(self.model.dtype(), Dtype::F32 | Dtype::Int8) {
            return Ok(Err(Reason::NotFinite));
        }
        let output = match self.forward(selection, &(sequence..sequence + 1), Dtype::F32) {
            Err(EngineError::Model(error)) if error.is_out_of_memory() => {
                return Ok(Err(Reason::OutOfMemory));
            }
            output => output?,
        };
        computed.stats.add_device_times(output.times);
        let own: Vec<&[f32]> = output.columns.iter().map(|values| &values[..]).collect();
        if !self.is_finite(selection, sequence, &own) {
            return Ok(Err(Reason::NotFinite));
        }
        computed.stats.in_f32 += 1;
        extend_columns(&mut computed.values, &own);
        Ok(Ok(()))
    }

    /// Whether all values of a sequence are finite in the stored type.
    fn is_finite(&self, selection: Selection<'_>, sequence: usize, values: &[&[f32]]) -> bool {
        let injected = &self.injection.not_finite;
        let mut columns = values.iter();
        !injected.contains(&selection.ordinal(sequence))
            && columns.all(|values| is_storable(values, selection.dtype))
    }

    /// Iterates over `sequences` with their values, one slice for each column.
    fn by_sequence<'v>(
        &self,
        selection: Selection<'v>,
        sequences: Range<usize>,
        values: &'v [Buffer<f32>],
    ) -> impl Iterator<Item = (usize, Vec<&'v [f32]>)> {
        let rows = sequences.clone();
        let residues = rows.map(move |sequence| selection.residues(sequence));
        let dim = self.model.config().hidden;
        sequences.zip(split_columns(selection.columns, dim, values, residues))
    }
}

/// Splits the values of columns by sequence, given the residues of each. Each item has one slice for each column.
pub(crate) fn split_columns<'v>(
    columns: &'v [Column],
    dim: usize,
    values: &'v [Buffer<f32>],
    residues: impl Iterator<Item = usize> + 'v,
) -> impl Iterator<Item = Vec<&'v [f32]>> {
    let mut left: Vec<&[f32]> = values.iter().map(|values| &values[..]).collect();
    residues.map(move |residues| {
        let columns = columns.iter().zip(&mut left);
        let slices = columns.map(|(column, left)| {
            let own;
            (own, *left) = left.split_at(column.values(residues, dim));
            own
        });
        slices.collect()
    })
}

/// Appends the values of a sequence, one slice for each column.
pub(crate) fn extend_columns(columns: &mut [Buffer<f32>], values: &[impl AsRef<[f32]>]) {
    for (column, values) in columns.iter_mut().zip(values) {
        column.extend_from_slice(values.as_ref());
    }
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

/// Returns where to cut two or more sequences with these offsets, which start at 0. Both sides are non-empty and have nearly the
/// same number of tokens.
fn middle(cu_seqlens: &[i32]) -> usize {
    let sequences = cu_seqlens.len() - 1;
    let half = cu_seqlens[sequences] / 2;
    let cut = cu_seqlens.partition_point(|&offset| offset < half);
    cut.clamp(1, sequences - 1)
}

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
