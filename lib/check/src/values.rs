//! Whether values are finite, and how long vectors are.

use plmkit_contract::{Column, Pooling, RowKey, plural};
use serde::Serialize;

use crate::check::Check;
use crate::vector::dot;
use crate::violation::Violations;

/// The vectors of one column over all files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnNorms {
    /// The column's name.
    pub column: Column,
    /// Its vectors.
    pub vectors: u64,
    /// NaN values in them.
    pub nan: u64,
    /// Infinite values in them.
    pub infinite: u64,
    /// Vectors that are zero in every value.
    pub zero: u64,
    /// The smallest Euclidean norm of a finite vector; null when there is none.
    pub min: Option<f64>,
    /// The mean norm of the finite vectors; null when there is none.
    pub mean: Option<f64>,
    /// The largest norm of a finite vector; null when there is none.
    pub max: Option<f64>,
    #[serde(skip)]
    finite: u64,
    #[serde(skip)]
    norm_sum: f64,
}

/// The values of all columns.
#[derive(Debug, Default)]
pub(crate) struct Values {
    columns: Vec<ColumnNorms>,
    not_finite: Violations,
    zero: Violations,
}

impl Values {
    /// The place of `column` for [`Values::add`].
    pub(crate) fn column(&mut self, column: Column) -> usize {
        let known = self.columns.iter().position(|known| known.column == column);
        known.unwrap_or_else(|| {
            self.columns.push(ColumnNorms {
                column,
                vectors: 0,
                nan: 0,
                infinite: 0,
                zero: 0,
                min: None,
                mean: None,
                max: None,
                finite: 0,
                norm_sum: 0.0,
            });
            self.columns.len() - 1
        })
    }

    pub(crate) fn add(&mut self, row: &RowKey, column: usize, vector: &[f32]) {
        let norms = &mut self.columns[column];
        let column = norms.column;
        norms.vectors += 1;
        // Squares of finite single-precision values cannot overflow a double-precision sum.
        let norm = dot(vector, vector).sqrt();
        if !norm.is_finite() {
            let nan = vector.iter().filter(|value| value.is_nan()).count() as u64;
            let infinite = vector.iter().filter(|value| value.is_infinite()).count() as u64;
            norms.nan += nan;
            norms.infinite += infinite;
            let problem = format_args!("{column}: {nan} NaN, {infinite} infinite values");
            self.not_finite.add_row(row, problem);
            return;
        }
        norms.finite += 1;
        norms.norm_sum += norm;
        norms.min = Some(norms.min.map_or(norm, |min| min.min(norm)));
        norms.max = Some(norms.max.map_or(norm, |max| max.max(norm)));
        if norm == 0.0 {
            norms.zero += 1;
            // Equal residues deviate by zero, and a protein may have no contacts.
            let may_be = match column {
                Column::Pooled(name) => name.pool == Pooling::Std,
                Column::Contacts => true,
                Column::Residues(_) | Column::Logits => false,
            };
            if !may_be {
                let problem = format_args!("{column}: all values are zero");
                self.zero.add_row(row, problem);
            }
        }
    }

    /// The checks `finite` and `norms`, and the distribution of norms.
    pub(crate) fn finish(self) -> ([Check; 2], Vec<ColumnNorms>) {
        let mut norms = self.columns;
        for column in &mut norms {
            column.mean = (column.finite > 0).then(|| column.norm_sum / column.finite as f64);
        }
        let sum = |count: fn(&ColumnNorms) -> u64| norms.iter().map(count).sum::<u64>();
        let vectors = sum(|column| column.vectors);
        let (nan, infinite) = (sum(|column| column.nan), sum(|column| column.infinite));
        let of_vectors = plural(vectors, "vector");
        let (not_finite, zero) = (self.not_finite.count, self.zero.count);
        let finite = Check::judged(
            "finite",
            format!("{not_finite} of {of_vectors} with NaN or infinite values"),
            [("vectors", vectors), ("nan", nan), ("infinite", infinite)],
            [("not_finite", self.not_finite)],
        );
        let zero = Check::judged(
            "norms",
            format!("{zero} of {of_vectors} with all values zero"),
            [("vectors", vectors)],
            [("zero", self.zero)],
        );
        ([finite, zero], norms)
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{SequenceDigest, VectorColumn};

    use super::*;
    use crate::CheckOutcome;

    fn judge(pool: Pooling, vectors: &[[f32; 2]]) -> ([Check; 2], Vec<ColumnNorms>) {
        let row = RowKey {
            ordinal: 4,
            id: "P",
            start: 0,
            length: 1,
            truncated: false,
            digest: SequenceDigest::default(),
            n_windows: 1,
        };
        let mut values = Values::default();
        let column = values.column(Column::Pooled(VectorColumn { pool, layer: 1 }));
        for vector in vectors {
            values.add(&row, column, vector);
        }
        values.finish()
    }

    #[test]
    fn nan_and_infinite_values_are_counted_and_their_rows_named() {
        let ([finite, zero], norms) = judge(
            Pooling::Mean,
            &[
                [3.0, 4.0],
                [f32::NAN, f32::INFINITY],
                [f32::NEG_INFINITY, 1.0],
                [f32::MAX, 0.0],
            ],
        );
        assert_eq!(finite.outcome, CheckOutcome::Fail);
        assert_eq!(finite.counts["not_finite"], 2);
        assert_eq!((finite.counts["nan"], finite.counts["infinite"]), (1, 2));
        assert_eq!(
            finite.violations[0].to_string(),
            "ordinal 4 'P': mean_1: 1 NaN, 1 infinite values"
        );
        assert_eq!(zero.outcome, CheckOutcome::Pass);
        assert_eq!(
            (norms[0].min, norms[0].max),
            (Some(5.0), Some(f64::from(f32::MAX)))
        );
    }

    #[test]
    fn a_zero_vector_fails_but_as_a_deviation() {
        let ([_, zero], norms) = judge(Pooling::Bos, &[[0.0, -0.0], [1.0, 0.0]]);
        assert_eq!((zero.outcome, zero.counts["zero"]), (CheckOutcome::Fail, 1));
        assert_eq!(
            (norms[0].min, norms[0].mean, norms[0].max),
            (Some(0.0), Some(0.5), Some(1.0))
        );
        let ([_, zero], norms) = judge(Pooling::Std, &[[0.0, 0.0]]);
        assert_eq!((zero.outcome, norms[0].zero), (CheckOutcome::Pass, 1));
    }

    #[test]
    fn no_finite_vector_no_norm() {
        let (_, norms) = judge(Pooling::Mean, &[[f32::NAN, 0.0]]);
        assert_eq!(
            (norms[0].min, norms[0].mean, norms[0].max),
            (None, None, None)
        );
    }
}
