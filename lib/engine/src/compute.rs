//! Sequences to vectors, whatever happens to them.

use std::ops::Range;

use plmkit_contract::{Column, Reason, Stop, StoreDtype};
use plmkit_esm2::{Buffer, Computed as FromModel, DeviceTimes, Dtype, Esm2, Pending, Varlen};

use crate::EngineError;
use crate::allowance::Allowance;
use crate::config::Injection;
use crate::selection::Selection;

/// What became of some sequences.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Computed {
    /// For each column the values of the sequences that are not rejected, one after the other.
    pub(crate) values: Vec<Buffer<f32>>,
    /// The sequences that have no values, rising.
    pub(crate) rejected: Vec<(usize, Reason)>,
    /// How many times sequences were computed in two halves because memory ran out.
    pub(crate) oom_splits: u64,
    /// How many sequences were computed again in f32.
    pub(crate) in_f32: u64,
    /// What a device took for all of that, where one did.
    pub(crate) times: Option<DeviceTimes>,
}

impl Computed {
    /// A device took so long for more.
    fn add_times(&mut self, times: Option<DeviceTimes>) {
        if let Some(times) = times {
            *self.times.get_or_insert_default() += times;
        }
    }
}

/// What came of a computation that was begun.
pub(crate) type Begun = Result<FromModel, EngineError>;

/// Computes sequences with a model.
///
/// Memory that runs out and values that are not finite cost the sequences that cannot be computed, and no other.
pub(crate) struct Embedder<'a> {
    pub(crate) model: &'a Esm2,
    pub(crate) stop: &'a Stop,
    pub(crate) injection: &'a Injection,
    pub(crate) allowance: Allowance,
}

impl Embedder<'_> {
    /// Asks for the values of some sequences, if they can be computed together: a device computes them while the program goes on.
    /// [`embed`](Self::embed) takes what comes of it, and knows what to do where that is an error.
    pub(crate) fn begin(&self, selection: &Selection<'_>) -> Option<Result<Pending, EngineError>> {
        let all = 0..selection.len();
        if all.is_empty() || !self.allowance.permits(selection.tokens(&all).len()) {
            return None;
        }
        Some(self.ask(selection, &all, self.model.dtype()))
    }

    /// The values of some sequences of a pack, those that were begun or new ones. Once a stop was requested, the error is
    /// [`EsmError::Stopped`].
    pub(crate) fn embed(
        &mut self,
        selection: &Selection<'_>,
        begun: Option<Begun>,
    ) -> Result<Computed, EngineError> {
        let mut computed = Computed {
            values: buffers(selection.columns.len()),
            ..Computed::default()
        };
        if selection.len() > 0 {
            self.sequences(selection, 0..selection.len(), begun, &mut computed)?;
        }
        Ok(computed)
    }

    /// Computes some of the sequences, in halves where they do not fit into memory together.
    fn sequences(
        &mut self,
        selection: &Selection<'_>,
        sequences: Range<usize>,
        begun: Option<Begun>,
        computed: &mut Computed,
    ) -> Result<(), EngineError> {
        let tokens = selection.tokens(&sequences).len();
        if begun.is_none() && sequences.len() > 1 && !self.allowance.permits(tokens) {
            return self.halves(selection, sequences, computed);
        }
        let outcome =
            begun.unwrap_or_else(|| self.forward(selection, &sequences, self.model.dtype()));
        match outcome {
            Ok(found) => {
                self.allowance.succeeded(tokens);
                computed.add_times(found.times);
                self.keep_finite(selection, &sequences, found.columns, computed)
            }
            Err(EngineError::Model(error)) if error.is_out_of_memory() => {
                if sequences.len() == 1 {
                    let reject = (sequences.start, Reason::OutOfMemory);
                    computed.rejected.push(reject);
                    return Ok(());
                }
                self.allowance.failed(tokens);
                self.model.release()?;
                computed.oom_splits += 1;
                self.halves(selection, sequences, computed)
            }
            Err(error) => Err(error),
        }
    }

    fn halves(
        &mut self,
        selection: &Selection<'_>,
        sequences: Range<usize>,
        computed: &mut Computed,
    ) -> Result<(), EngineError> {
        let middle = sequences.start + middle(selection.offsets(&sequences));
        self.sequences(selection, sequences.start..middle, None, computed)?;
        self.sequences(selection, middle..sequences.end, None, computed)
    }

    fn forward(&self, selection: &Selection<'_>, sequences: &Range<usize>, dtype: Dtype) -> Begun {
        Ok(self.ask(selection, sequences, dtype)?.finish()?)
    }

    fn ask(
        &self,
        selection: &Selection<'_>,
        sequences: &Range<usize>,
        dtype: Dtype,
    ) -> Result<Pending, EngineError> {
        let (offsets, tokens) = (selection.offsets(sequences), selection.tokens(sequences));
        let ordinals = sequences.clone().map(|row| selection.ordinal(row));
        self.injection.strike(ordinals);
        self.injection.memory_for(tokens.len())?;
        let cu_seqlens: Vec<i32> = offsets.iter().map(|offset| offset - offsets[0]).collect();
        let job = selection.job();
        let batch = Varlen::new(tokens, &cu_seqlens)
            .map_err(|error| EngineError::batch(&job.path, job.batch_in_file, error))?;
        let columns = selection.columns;
        Ok(self.model.begin(batch, columns, dtype, self.stop)?)
    }

    /// Takes over the values of the sequences all of whose values are finite. Others are computed again by themselves
    /// where f32 is more than the model's own type.
    fn keep_finite(
        &self,
        selection: &Selection<'_>,
        sequences: &Range<usize>,
        values: Vec<Buffer<f32>>,
        computed: &mut Computed,
    ) -> Result<(), EngineError> {
        let finite = self.finite(selection, sequences, &values);
        if !finite.contains(&false) && computed.values.iter().all(|values| values.is_empty()) {
            computed.values = values;
            return Ok(());
        }
        let mut cut: Vec<_> = selection
            .columns
            .iter()
            .zip(&values)
            .map(|(&column, values)| self.by_sequence(selection, sequences, column, values))
            .collect();
        for (sequence, finite) in sequences.clone().zip(finite) {
            let own = cut.iter_mut().filter_map(Iterator::next);
            if finite {
                keep(own, computed);
                continue;
            }
            // What the iterators skip must be taken from each.
            own.for_each(drop);
            match self.in_f32(selection, sequence, computed)? {
                Ok(values) => keep(values.iter().map(|values| &values[..]), computed),
                Err(reason) => computed.rejected.push((sequence, reason)),
            }
        }
        Ok(())
    }

    /// Computes a sequence again in f32, or says why it has no values.
    fn in_f32(
        &self,
        selection: &Selection<'_>,
        sequence: usize,
        computed: &mut Computed,
    ) -> Result<Result<Vec<Buffer<f32>>, Reason>, EngineError> {
        // Integers are as wide as f32.
        if matches!(self.model.dtype(), Dtype::F32 | Dtype::Int8) {
            return Ok(Err(Reason::NotFinite));
        }
        let own = sequence..sequence + 1;
        match self.forward(selection, &own, Dtype::F32) {
            Ok(found) => {
                computed.add_times(found.times);
                if !self.finite(selection, &own, &found.columns)[0] {
                    return Ok(Err(Reason::NotFinite));
                }
                computed.in_f32 += 1;
                Ok(Ok(found.columns))
            }
            Err(EngineError::Model(error)) if error.is_out_of_memory() => {
                Ok(Err(Reason::OutOfMemory))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether all values of each of `sequences` are finite, also in the type in which they have to be.
    fn finite(
        &self,
        selection: &Selection<'_>,
        sequences: &Range<usize>,
        values: &[Buffer<f32>],
    ) -> Vec<bool> {
        let mut finite: Vec<bool> = sequences
            .clone()
            .map(|sequence| {
                let ordinal = selection.ordinal(sequence);
                !self.injection.not_finite.contains(&ordinal)
            })
            .collect();
        for (&column, values) in selection.columns.iter().zip(values) {
            let own = self.by_sequence(selection, sequences, column, values);
            own.zip(&mut finite)
                .for_each(|(values, finite)| *finite &= storable(values, selection.dtype));
        }
        finite
    }

    /// The values of a column, cut into those of each of `sequences`.
    fn by_sequence<'v>(
        &self,
        selection: &Selection<'_>,
        sequences: &Range<usize>,
        column: Column,
        values: &'v [f32],
    ) -> impl Iterator<Item = &'v [f32]> {
        let dim = self.model.config().hidden;
        let sizes = sequences
            .clone()
            .map(move |sequence| column.values(selection.residues(sequence), dim));
        sizes.scan(values, |left, size| {
            let own;
            (own, *left) = left.split_at(size);
            Some(own)
        })
    }
}

/// As many, with nothing in them.
pub(crate) fn buffers(count: usize) -> Vec<Buffer<f32>> {
    std::iter::repeat_with(Buffer::default)
        .take(count)
        .collect()
}

/// Adds the values of a sequence, one slice for each column.
fn keep<'v>(values: impl Iterator<Item = &'v [f32]>, computed: &mut Computed) {
    for (kept, values) in computed.values.iter_mut().zip(values) {
        kept.extend_from_slice(values);
    }
}

/// Whether every value is finite in the type in which it is stored.
pub(crate) fn storable(values: &[f32], dtype: StoreDtype) -> bool {
    // Magnitudes as integers, which are in the same order: infinity and what is no number come last.
    let limit = match dtype {
        StoreDtype::F32 => f32::INFINITY,
        StoreDtype::F16 => F16_INFINITE,
    };
    let magnitude = |value: &f32| value.to_bits() & !(1 << 31);
    // Without a way out for each value, the compiler takes many at once.
    values.chunks(1024).all(|values| {
        let largest = values.iter().map(magnitude).fold(0, u32::max);
        largest < limit.to_bits()
    })
}

/// The smallest magnitude that is rounded to infinity: half a step above the largest value of f16.
const F16_INFINITE: f32 = 65520.0;

/// Where to cut two or more sequences, given their offsets, so that both sides have some, and nearly the same number of
/// tokens.
fn middle(offsets: &[i32]) -> usize {
    let sequences = offsets.len() - 1;
    let (start, end) = (offsets[0], offsets[sequences]);
    let half = start + (end - start) / 2;
    let cut = offsets.partition_point(|&offset| offset < half);
    cut.clamp(1, sequences - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_have_sequences() {
        assert_eq!(middle(&[0, 10, 20, 30, 40]), 2);
        assert_eq!(middle(&[20, 30, 40]), 1);
        assert_eq!(middle(&[0, 100, 101]), 1);
        assert_eq!(middle(&[0, 1, 101]), 1);
        assert_eq!(middle(&[0, 1, 2, 3, 100]), 3);
    }

    #[test]
    fn what_becomes_infinite_in_half_precision_is_not_storable_in_it() {
        assert!(storable(&[65504.0, -1.0], StoreDtype::F16));
        assert!(!storable(&[70000.0], StoreDtype::F16));
        assert!(storable(&[70000.0], StoreDtype::F32));
        assert!(!storable(&[f32::NAN], StoreDtype::F32));
        assert!(!storable(&[f32::INFINITY], StoreDtype::F16));
        for value in [
            65519.996,
            65520.0,
            65520.004,
            -65519.996,
            -65520.0,
            -f32::NAN,
        ] {
            let finite = half::f16::from_f32(value).is_finite();
            assert_eq!(storable(&[0.0, value], StoreDtype::F16), finite, "{value}");
        }
    }
}
