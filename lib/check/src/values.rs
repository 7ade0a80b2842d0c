//! Whether values are finite, and how long vectors are.

use plmkit_contract::{Column as Name, Pooling, RowKey, plural};
use serde::Serialize;

use crate::check::Check;
use crate::vector::dot;
use crate::violation::Violations;

/// The vectors of one column over all files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnNorms {
    /// The column's name.
    pub column: String,
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
}

/// The values of all columns.
#[derive(Debug, Default)]
pub(crate) struct Values {
    columns: Vec<Column>,
    not_finite: Violations,
    zero: Violations,
}

#[derive(Debug)]
struct Column {
    name: Name,
    vectors: u64,
    nan: u64,
    infinite: u64,
    zero: u64,
    finite: u64,
    norm_sum: f64,
    norm_min: f64,
    norm_max: f64,
}

impl Values {
    /// The place of `column` for [`Values::see`].
    pub(crate) fn column(&mut self, column: Name) -> usize {
        if let Some(place) = self.columns.iter().position(|known| known.name == column) {
            return place;
        }
        self.columns.push(Column {
            name: column,
            vectors: 0,
            nan: 0,
            infinite: 0,
            zero: 0,
            finite: 0,
            norm_sum: 0.0,
            norm_min: f64::INFINITY,
            norm_max: 0.0,
        });
        self.columns.len() - 1
    }

    pub(crate) fn add(&mut self, row: &RowKey, column: usize, vector: &[f32]) {
        let column = &mut self.columns[column];
        column.vectors += 1;
        // Squares of finite single-precision values cannot overflow a double-precision sum.
        let norm = dot(vector, vector).sqrt();
        if !norm.is_finite() {
            let nan = vector.iter().filter(|value| value.is_nan()).count() as u64;
            let infinite = vector.iter().filter(|value| value.is_infinite()).count() as u64;
            column.nan += nan;
            column.infinite += infinite;
            let name = column.name;
            let problem = format_args!("{name}: {nan} NaN, {infinite} infinite values");
            self.not_finite.add_row(row, problem);
            return;
        }
        column.finite += 1;
        column.norm_sum += norm;
        column.norm_min = column.norm_min.min(norm);
        column.norm_max = column.norm_max.max(norm);
        if norm == 0.0 {
            column.zero += 1;
            // Equal residues deviate by zero, and a protein may have no contacts.
            let may_be = match column.name {
                Name::Pooled(name) => name.pool == Pooling::Std,
                Name::Contacts => true,
                Name::Residues(_) | Name::Logits => false,
            };
            if !may_be {
                let problem = format_args!("{}: all values are zero", column.name);
                self.zero.add_row(row, problem);
            }
        }
    }

    /// The checks `finite` and `norms`, and the distribution of norms.
    pub(crate) fn finish(self) -> ([Check; 2], Vec<ColumnNorms>) {
        let norms: Vec<ColumnNorms> = self.columns.iter().map(Column::norms).collect();
        let sum = |count: fn(&ColumnNorms) -> u64| norms.iter().map(count).sum::<u64>();
        let vectors = sum(|column| column.vectors);
        let (nan, infinite) = (sum(|column| column.nan), sum(|column| column.infinite));
        let finite = Check::judged(
            "finite",
            format!(
                "{} of {} with NaN or infinite values",
                self.not_finite.count,
                plural(vectors, "vector")
            ),
            [("vectors", vectors), ("nan", nan), ("infinite", infinite)],
            [("not_finite", self.not_finite)],
        );
        let zero = Check::judged(
            "norms",
            format!(
                "{} of {} with all values zero",
                self.zero.count,
                plural(vectors, "vector")
            ),
            [("vectors", vectors)],
            [("zero", self.zero)],
        );
        ([finite, zero], norms)
    }
}

impl Column {
    fn norms(&self) -> ColumnNorms {
        let some = |value: f64| (self.finite > 0).then_some(value);
        ColumnNorms {
            column: self.name.to_string(),
            vectors: self.vectors,
            nan: self.nan,
            infinite: self.infinite,
            zero: self.zero,
            min: some(self.norm_min),
            mean: some(self.norm_sum / self.finite as f64),
            max: some(self.norm_max),
        }
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
        let column = values.column(Name::Pooled(VectorColumn { pool, layer: 1 }));
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
