//! The values of each vector column: whether they are finite, how long vectors are, and whether every dimension changes.

use std::collections::HashSet;

use plmkit_contract::{Column, EmbeddingLayout, Pooling, RowKey, StoreDtype, plural};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::look::{Look, LookFindings};
use crate::sequences::{SequenceViolations, Sequences};
use crate::tolerance::Tolerance;
use crate::vector::dot;
use crate::violation::Violations;

/// Sequences that a file needs before a dimension that never changes is a fault.
const MIN_VARYING: usize = 16;

/// One in so many values may be exactly zero in a vector that is not zero.
const MAX_ZEROS: usize = 16;

/// The vectors of one column over all files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The smallest Euclidean norm of a finite vector; null, as what follows, when there is none.
    pub min: Option<f64>,
    /// The mean norm.
    pub mean: Option<f64>,
    /// The largest norm.
    pub max: Option<f64>,
}

/// One column, over the files so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ColumnFindings {
    /// `mean` is left out until the end.
    norms: ColumnNorms,
    norm_sum: f64,
    finite: u64,
    sequences: Sequences,
}

/// What is wrong with vectors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct VectorViolations {
    pub(crate) not_finite: Violations,
    pub(crate) zero: Violations,
    pub(crate) zeros: Violations,
    pub(crate) scale: Violations,
    pub(crate) constant: Violations,
    pub(crate) look: LookFindings,
    pub(crate) sequences: SequenceViolations,
}

/// One column of the file that is being read.
#[derive(Debug)]
pub(crate) struct FileColumn {
    findings: ColumnFindings,
    /// Whether values are as exact as f32: in other types, proteins that are nearly the same have the same vector.
    exact: bool,
    tolerance: Tolerance,
    /// None where a row has more than one vector, and in layer 0: it knows no context, so that `<cls>` has the same vector in every
    /// protein, and many proteins share their largest values.
    changes: Option<Changes>,
    look: Option<Look>,
}

/// Which dimensions of a column change in a file.
#[derive(Debug, Default)]
struct Changes {
    vectors: u64,
    /// Digests of different sequences, as many as [`MIN_VARYING`] at most.
    sequences: HashSet<u64>,
    first: Vec<f32>,
    /// Bits in which a value has differed from the first: `(dim)`.
    changed_bits: Vec<u32>,
}

impl FileColumn {
    /// A column of a file, of which `sample` are some vectors.
    pub(crate) fn new(
        column: Column,
        sample: &[&[f32]],
        layout: &EmbeddingLayout,
        computed: &str,
        tolerance: Tolerance,
    ) -> Self {
        let pool = match column {
            Column::Pooled { pool, layer: 1.. } => Some(pool),
            _ => None,
        };
        Self {
            findings: ColumnFindings {
                norms: ColumnNorms {
                    column,
                    vectors: 0,
                    nan: 0,
                    infinite: 0,
                    zero: 0,
                    min: None,
                    mean: None,
                    max: None,
                },
                norm_sum: 0.0,
                finite: 0,
                sequences: Sequences::default(),
            },
            exact: layout.dtype == StoreDtype::F32 && computed == "f32",
            tolerance,
            changes: pool.map(|_| Changes::default()),
            look: pool.map(|pool| Look::new(pool, sample, layout.dim)),
        }
    }

    /// Adds the vector of the row at a place of the file. `size` is what its norm is judged by, if not by itself: see [`Look::add`].
    /// Returns whether it is finite.
    pub(crate) fn add(
        &mut self,
        place: usize,
        row: &RowKey,
        vector: &[f32],
        size: Option<f64>,
        violations: &mut VectorViolations,
    ) -> bool {
        let norms = &mut self.findings.norms;
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
            violations.not_finite.add_row(row, problem);
            return false;
        }
        norms.min = Some(norms.min.map_or(norm, |min| min.min(norm)));
        norms.max = Some(norms.max.map_or(norm, |max| max.max(norm)));
        self.findings.norm_sum += norm;
        self.findings.finite += 1;
        if norm == 0.0 {
            norms.zero += 1;
            // Equal residues deviate by zero, and a protein may have no contacts.
            let may_be_zero = match column {
                Column::Pooled { pool, .. } => pool == Pooling::Std,
                Column::Contacts => true,
                Column::Residues(_) | Column::Logits => false,
            };
            if !may_be_zero {
                let problem = format_args!("{column}: all values are zero");
                violations.zero.add_row(row, problem);
            }
            return true;
        }
        if let (Some(changes), Some(look)) = (&mut self.changes, &mut self.look) {
            let zeros = changes.add(row, vector);
            if zeros * MAX_ZEROS > vector.len() {
                let values = vector.len();
                let problem = format_args!("{column}: {zeros} of {values} values are exactly zero");
                violations.zeros.add_row(row, problem);
            }
            look.add(place, row, vector, size.unwrap_or(norm));
            let (exact, tolerance) = (self.exact, self.tolerance);
            let found = &mut violations.sequences;
            let sequences = &mut self.findings.sequences;
            let size = size.unwrap_or(norm);
            sequences.add(column, row, vector, size, (exact, tolerance), found);
        }
        true
    }

    /// Whether it has contacts.
    pub(crate) fn is_contacts(&self) -> bool {
        self.findings.norms.column == Column::Contacts
    }

    /// What the file has of the column. `key` has the ordinal, the start and the id of the row at a place.
    pub(crate) fn finish<'a>(
        self,
        file: &str,
        key: impl Fn(usize) -> (u64, u32, &'a str),
        violations: &mut VectorViolations,
    ) -> ColumnFindings {
        let column = self.findings.norms.column;
        if let Some(changes) = self.changes {
            changes.list_constant(column, file, self.exact, &mut violations.constant);
        }
        if let Some(look) = self.look {
            if let Some(problem) = look.implausible() {
                let problem = format_args!("{file}: the median norm of {column} is {problem}");
                violations.scale.add_file(problem);
            }
            look.finish(column, key, &mut violations.look);
        }
        self.findings
    }
}

impl Changes {
    /// Adds a vector that is finite and not zero. Returns how many of its values are zero.
    fn add(&mut self, row: &RowKey, vector: &[f32]) -> usize {
        self.vectors += 1;
        if self.sequences.len() < MIN_VARYING {
            self.sequences.insert(row.digest.hash());
        }
        if self.vectors == 1 {
            self.first = vector.to_vec();
            self.changed_bits = vec![0; vector.len()];
        }
        let mut zeros = 0_usize;
        let firsts = self.first.iter().zip(vector);
        for (changed, (first, value)) in self.changed_bits.iter_mut().zip(firsts) {
            *changed |= value.to_bits() ^ first.to_bits();
            zeros += usize::from(*value == 0.0);
        }
        zeros
    }

    /// Lists the dimensions that never change. In other types than f32, a large value that hardly changes has one rounding.
    fn list_constant(&self, column: Column, file: &str, exact: bool, constant: &mut Violations) {
        if self.sequences.len() < MIN_VARYING {
            return;
        }
        let dimensions = self.changed_bits.iter().enumerate();
        let dimensions =
            dimensions.filter(|&(d, &changed)| changed == 0 && (exact || self.first[d] == 0.0));
        for (d, _) in dimensions {
            let (value, vectors) = (self.first[d], self.vectors);
            constant.add_file(format_args!(
                "{file}: {column} is {value} in dimension {d} of all {vectors} vectors"
            ));
        }
    }
}

impl ColumnFindings {
    pub(crate) fn column(&self) -> Column {
        self.norms.column
    }

    pub(crate) fn merge(&mut self, other: Self, violations: &mut SequenceViolations) {
        let (norms, more) = (&mut self.norms, other.norms);
        norms.vectors += more.vectors;
        norms.nan += more.nan;
        norms.infinite += more.infinite;
        norms.zero += more.zero;
        norms.min = [norms.min, more.min].into_iter().flatten().reduce(f64::min);
        norms.max = [norms.max, more.max].into_iter().flatten().reduce(f64::max);
        self.norm_sum += other.norm_sum;
        self.finite += other.finite;
        self.sequences
            .merge(norms.column, other.sequences, violations);
    }

    /// Vectors of sequences that were there before.
    pub(crate) fn repeated(&self) -> u64 {
        self.sequences.repeated
    }

    /// The norms.
    pub(crate) fn norms(self) -> ColumnNorms {
        ColumnNorms {
            mean: (self.finite > 0).then(|| self.norm_sum / self.finite as f64),
            ..self.norms
        }
    }
}

impl VectorViolations {
    pub(crate) fn merge(&mut self, other: Self) {
        self.not_finite.merge(other.not_finite);
        self.zero.merge(other.zero);
        self.zeros.merge(other.zeros);
        self.scale.merge(other.scale);
        self.constant.merge(other.constant);
        self.look.merge(other.look);
        self.sequences.merge(other.sequences);
    }

    /// The checks `finite`, `norms`, `sequences`, `constant` and `outliers`.
    pub(crate) fn finish(self, columns: &[ColumnFindings]) -> [Check; 5] {
        let sum = |count: fn(&ColumnNorms) -> u64| -> u64 {
            columns.iter().map(|column| count(&column.norms)).sum()
        };
        let vectors = sum(|column| column.vectors);
        let of_vectors = plural(vectors, "vector");
        let repeated = columns.iter().map(ColumnFindings::repeated).sum();
        let finite = Check::judged(
            "finite",
            format!(
                "{} of {of_vectors} with NaN or infinite values",
                self.not_finite.count
            ),
            [
                ("vectors", vectors),
                ("nan", sum(|column| column.nan)),
                ("infinite", sum(|column| column.infinite)),
            ],
            [("not_finite", self.not_finite)],
        );
        let norms = Check::judged(
            "norms",
            format!(
                "{} of {of_vectors} with all values zero, {} with many zeros; {} of implausible size",
                self.zero.count,
                self.zeros.count,
                plural(self.scale.count, "column")
            ),
            [("vectors", vectors)],
            [
                ("zero", self.zero),
                ("zeros", self.zeros),
                ("scale", self.scale),
            ],
        );
        let constant = Check::judged(
            "constant",
            format!(
                "{} dimensions that never change in a file",
                self.constant.count
            ),
            [],
            [("constant", self.constant)],
        );
        let (sequences, outliers) = (self.sequences.finish(repeated), self.look.finish());
        [finite, norms, sequences, constant, outliers]
    }
}
