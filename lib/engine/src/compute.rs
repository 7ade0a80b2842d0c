//! A pack to vectors, whatever happens to it.

use std::ops::Range;

use half::f16;
use plmkit_contract::{Column, Reason, Stop, StoreDtype};
use plmkit_esm2::{Esm2, EsmError, Varlen};

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
}

/// Computes packs with a model.
///
/// Memory that runs out and values that are not finite cost the sequences that cannot be computed, and no other.
pub(crate) struct Embedder<'a> {
    pub(crate) model: &'a Esm2,
    pub(crate) columns: &'a [Column],
    pub(crate) store_dtype: StoreDtype,
    pub(crate) stop: &'a Stop,
    pub(crate) injection: &'a Injection,
    pub(crate) allowance: Allowance,
}

impl Embedder<'_> {
    /// The vectors of a pack; `None` once a stop was requested.
    pub(crate) fn embed(&mut self, job: &Job<'_>) -> Result<Option<Embedded>, EngineError> {
        let mut embedded = Embedded {
            values: vec![Vec::new(); self.columns.len()],
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
        match self.forward(job, &rows) {
            Ok(values) => {
                self.allowance.succeeded(tokens);
                self.keep_finite(job, &rows, values, embedded);
                Ok(())
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

    fn forward(&self, job: &Job<'_>, rows: &Range<usize>) -> Result<Vec<Vec<f32>>, EngineError> {
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
        Ok(self.model.embed(batch, self.columns, self.stop)?)
    }

    /// Takes over the values of the sequences all of whose values are finite, also as they will be stored.
    fn keep_finite(
        &self,
        job: &Job<'_>,
        rows: &Range<usize>,
        values: Vec<Vec<f32>>,
        embedded: &mut Embedded,
    ) {
        let mut finite: Vec<bool> = rows
            .clone()
            .map(|row| {
                let ordinal = job.pack.ordinals().value(row);
                !self.injection.not_finite.contains(&ordinal)
            })
            .collect();
        for (&column, values) in self.columns.iter().zip(&values) {
            let rows = self.by_row(job, rows, column, values).zip(&mut finite);
            rows.for_each(|(values, finite)| *finite &= storable(values, self.store_dtype));
        }
        let all = !finite.contains(&false);
        for ((kept, &column), values) in embedded.values.iter_mut().zip(self.columns).zip(values) {
            if kept.is_empty() && all {
                *kept = values;
                continue;
            }
            let rows = self.by_row(job, rows, column, &values).zip(&finite);
            for (values, _) in rows.filter(|&(_, &finite)| finite) {
                kept.extend_from_slice(values);
            }
        }
        let rejected = rows.clone().zip(&finite).filter(|&(_, &finite)| !finite);
        let rejected = rejected.map(|(row, _)| (row, Reason::NotFinite));
        embedded.rejected.extend(rejected);
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
