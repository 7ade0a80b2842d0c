//! A pack to vectors, whatever happens to it.

use std::ops::Range;

use half::f16;
use plmkit_contract::{Column, EmbeddingLayout, Reason, Stop, StoreDtype};
use plmkit_esm2::{Dtype, Esm2, EsmError, Varlen};

use crate::EngineError;
use crate::allowance::Allowance;
use crate::config::Injection;
use crate::plan::Job;

/// What became of a pack.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Embedded {
    /// For each column the values of the sequences that are not rejected, one after the other.
    pub(crate) values: Vec<Vec<f32>>,
    /// The sequences that have no vectors, rising.
    pub(crate) rejected: Vec<(usize, Reason)>,
    /// How many times sequences were computed in two halves because memory ran out.
    pub(crate) oom_splits: u64,
    /// How many sequences were computed again in f32.
    pub(crate) in_f32: u64,
}

/// Computes packs with a model.
///
/// Memory that runs out and values that are not finite cost the sequences that cannot be computed, and no other.
pub(crate) struct Embedder<'a> {
    pub(crate) model: &'a Esm2,
    pub(crate) layout: &'a EmbeddingLayout,
    pub(crate) stop: &'a Stop,
    pub(crate) injection: &'a Injection,
    pub(crate) allowance: Allowance,
}

impl Embedder<'_> {
    /// The vectors of a pack; `None` once a stop was requested.
    pub(crate) fn embed(&mut self, job: &Job<'_>) -> Result<Option<Embedded>, EngineError> {
        let mut embedded = Embedded {
            values: vec![Vec::new(); self.layout.columns.len()],
            ..Embedded::default()
        };
        match self.rows(job, 0..job.pack.sequences(), &mut embedded) {
            Ok(()) => Ok(Some(embedded)),
            Err(EngineError::Model(EsmError::Stopped)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Computes some sequences of a pack, in halves where they do not fit into memory together.
    fn rows(
        &mut self,
        job: &Job<'_>,
        rows: Range<usize>,
        embedded: &mut Embedded,
    ) -> Result<(), EngineError> {
        let offsets = &job.pack.cu_seqlens()[rows.start..=rows.end];
        let tokens = (offsets[rows.len()] - offsets[0]) as usize;
        if rows.len() > 1 && !self.allowance.permits(tokens) {
            return self.halves(job, rows, embedded);
        }
        match self.forward(job, &rows, self.model.dtype()) {
            Ok(values) => {
                self.allowance.succeeded(tokens);
                self.keep_finite(job, &rows, values, embedded)
            }
            Err(EngineError::Model(error)) if error.is_out_of_memory() => {
                if rows.len() == 1 {
                    embedded.rejected.push((rows.start, Reason::OutOfMemory));
                    return Ok(());
                }
                self.allowance.failed(tokens);
                embedded.oom_splits += 1;
                self.halves(job, rows, embedded)
            }
            Err(error) => Err(error),
        }
    }

    fn halves(
        &mut self,
        job: &Job<'_>,
        rows: Range<usize>,
        embedded: &mut Embedded,
    ) -> Result<(), EngineError> {
        let middle = middle(job.pack.cu_seqlens(), &rows);
        self.rows(job, rows.start..middle, embedded)?;
        self.rows(job, middle..rows.end, embedded)
    }

    fn forward(
        &self,
        job: &Job<'_>,
        rows: &Range<usize>,
        dtype: Dtype,
    ) -> Result<Vec<Vec<f32>>, EngineError> {
        let offsets = &job.pack.cu_seqlens()[rows.start..=rows.end];
        let first = offsets[0];
        let tokens = &job.pack.tokens()[first as usize..offsets[rows.len()] as usize];
        if self
            .injection
            .out_of_memory_above
            .is_some_and(|most| tokens.len() > most)
        {
            return Err(EsmError::OutOfMemory("injected".to_owned()).into());
        }
        let cu_seqlens: Vec<i32> = offsets.iter().map(|offset| offset - first).collect();
        let batch = Varlen::new(tokens, &cu_seqlens)
            .map_err(|error| EngineError::batch(job.path, job.batch_in_file, error))?;
        Ok(self
            .model
            .embed(batch, &self.layout.columns, dtype, self.stop)?)
    }

    /// Takes over the values of the sequences all of whose values are finite, also as they will be stored. Others are
    /// computed again by themselves where f32 is more than the model's own type.
    fn keep_finite(
        &self,
        job: &Job<'_>,
        rows: &Range<usize>,
        values: Vec<Vec<f32>>,
        embedded: &mut Embedded,
    ) -> Result<(), EngineError> {
        let finite = self.finite(job, rows, &values);
        if !finite.contains(&false) && embedded.values.iter().all(Vec::is_empty) {
            embedded.values = values;
            return Ok(());
        }
        let mut cut: Vec<_> = self
            .layout
            .columns
            .iter()
            .zip(&values)
            .map(|(&column, values)| self.by_row(job, rows, column, values))
            .collect();
        for (row, finite) in rows.clone().zip(finite) {
            let own = cut.iter_mut().filter_map(Iterator::next);
            if finite {
                keep(own, embedded);
                continue;
            }
            // What the iterators skip must be taken from each.
            own.for_each(drop);
            match self.in_f32(job, row, embedded)? {
                Ok(values) => keep(values.iter().map(Vec::as_slice), embedded),
                Err(reason) => embedded.rejected.push((row, reason)),
            }
        }
        Ok(())
    }

    /// Computes a sequence again in f32, or says why it has no values.
    fn in_f32(
        &self,
        job: &Job<'_>,
        row: usize,
        embedded: &mut Embedded,
    ) -> Result<Result<Vec<Vec<f32>>, Reason>, EngineError> {
        if self.model.dtype() == Dtype::F32 {
            return Ok(Err(Reason::NotFinite));
        }
        let own = row..row + 1;
        match self.forward(job, &own, Dtype::F32) {
            Ok(values) if self.finite(job, &own, &values)[0] => {
                embedded.in_f32 += 1;
                Ok(Ok(values))
            }
            Ok(_) => Ok(Err(Reason::NotFinite)),
            Err(EngineError::Model(error)) if error.is_out_of_memory() => {
                Ok(Err(Reason::OutOfMemory))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether all values of each of `rows` are finite, also as they will be stored.
    fn finite(&self, job: &Job<'_>, rows: &Range<usize>, values: &[Vec<f32>]) -> Vec<bool> {
        let mut finite: Vec<bool> = rows
            .clone()
            .map(|row| {
                let ordinal = job.pack.ordinals().value(row);
                !self.injection.not_finite.contains(&ordinal)
            })
            .collect();
        for (&column, values) in self.layout.columns.iter().zip(values) {
            let rows = self.by_row(job, rows, column, values).zip(&mut finite);
            rows.for_each(|(values, finite)| *finite &= storable(values, self.layout.dtype));
        }
        finite
    }

    /// The values of a column, cut into those of each of `rows`.
    fn by_row<'v>(
        &self,
        job: &Job<'_>,
        rows: &Range<usize>,
        column: Column,
        values: &'v [f32],
    ) -> impl Iterator<Item = &'v [f32]> {
        let dim = self.model.config().hidden;
        let sizes = rows
            .clone()
            .map(move |row| column.values(job.pack.residues(row), dim));
        sizes.scan(values, |left, size| {
            let row;
            (row, *left) = left.split_at(size);
            Some(row)
        })
    }
}

/// Adds the values of a sequence, one slice for each column.
fn keep<'v>(values: impl Iterator<Item = &'v [f32]>, embedded: &mut Embedded) {
    for (kept, values) in embedded.values.iter_mut().zip(values) {
        kept.extend_from_slice(values);
    }
}

/// Whether every value is finite in the type in which it is stored.
fn storable(values: &[f32], dtype: StoreDtype) -> bool {
    match dtype {
        StoreDtype::F32 => values.iter().all(|value| value.is_finite()),
        StoreDtype::F16 => values.iter().all(|&value| f16::from_f32(value).is_finite()),
    }
}

/// Where to cut two or more sequences so that both sides have some, and nearly the same number of tokens.
fn middle(cu_seqlens: &[i32], rows: &Range<usize>) -> usize {
    let (start, end) = (cu_seqlens[rows.start], cu_seqlens[rows.end]);
    let half = start + (end - start) / 2;
    let cut = cu_seqlens.partition_point(|&offset| offset < half);
    cut.clamp(rows.start + 1, rows.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_have_sequences() {
        let cu_seqlens = [0, 10, 20, 30, 40];
        assert_eq!(middle(&cu_seqlens, &(0..4)), 2);
        assert_eq!(middle(&cu_seqlens, &(2..4)), 3);
        assert_eq!(middle(&[0, 100, 101], &(0..2)), 1);
        assert_eq!(middle(&[0, 1, 101], &(0..2)), 1);
        assert_eq!(middle(&[0, 1, 2, 3, 100], &(0..4)), 3);
    }

    #[test]
    fn what_becomes_infinite_in_half_precision_is_not_storable_in_it() {
        assert!(storable(&[65504.0, -1.0], StoreDtype::F16));
        assert!(!storable(&[70000.0], StoreDtype::F16));
        assert!(storable(&[70000.0], StoreDtype::F32));
        assert!(!storable(&[f32::NAN], StoreDtype::F32));
        assert!(!storable(&[f32::INFINITY], StoreDtype::F16));
    }
}
