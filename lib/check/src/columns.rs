//! The values of each vector column: whether they are finite, how long vectors are, and whether every dimension changes.

use std::collections::HashSet;

use plmkit_contract::{Column, Pooling, RowKey, StoreDtype};
use serde::{Deserialize, Serialize};

use crate::check::{Tallies, Tally};
use crate::outliers::{Outliers, of_both_moments};
use crate::sequences::Sequences;
use crate::tolerance::Tolerance;
use crate::vector::dot;
use crate::violation::FILE;
use crate::{EmbeddedFile, contacts};

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

/// One column of the file that is being read.
#[derive(Debug)]
pub(crate) struct FileColumn {
    findings: ColumnFindings,
    /// Whether values are as exact as f32: in other types, proteins that are nearly the same have the same vector.
    exact: bool,
    tolerance: Tolerance,
    /// Of deviations, the place of the means of the layer, if they are there: the norm of both judges them.
    mean: Option<usize>,
    /// None where a row has more than one vector, and in layer 0: it knows no context, so that `<cls>` has the same vector in every
    /// protein, and many proteins share their largest values.
    changes: Option<Changes>,
    outliers: Option<Outliers>,
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
    pub(crate) fn new(column: Column, sample: &[&[f32]], file: &EmbeddedFile) -> Self {
        let layout = &file.layout;
        let computed = file.provenance.text_option("dtype").unwrap_or("f32");
        let pool = match column {
            Column::Pooled { pool, layer: 1.. } => Some(pool),
            _ => None,
        };
        let layer = column.layer();
        let is = |column: &Column, wanted| matches!(column, Column::Pooled { pool, .. } if *pool == wanted);
        let is_mean = |other: &Column| is(other, Pooling::Mean) && other.layer() == layer;
        let is_std = is(&column, Pooling::Std);
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
            tolerance: Tolerance::of(&file.provenance),
            mean: layout.columns.iter().position(is_mean).filter(|_| is_std),
            changes: pool.map(|_| Changes::default()),
            outliers: pool.map(|pool| Outliers::new(pool, sample, layout.dim)),
        }
    }

    /// Adds a vector of the row at a place of the file, which has these vectors in all columns. Returns whether it is finite.
    pub(crate) fn add(
        &mut self,
        place: usize,
        row: &RowKey,
        vector: &[f32],
        all: &[&[f32]],
        tallies: &mut Tallies,
    ) -> bool {
        let norms = &mut self.findings.norms;
        let column = norms.column;
        norms.vectors += 1;
        if column == Column::Contacts {
            contacts::check(row, vector, tallies.of("contacts"));
        }
        // Squares of finite single-precision values cannot overflow a double-precision sum.
        let norm = dot(vector, vector).sqrt();
        if !norm.is_finite() {
            let nan = vector.iter().filter(|value| value.is_nan()).count() as u64;
            let infinite = vector.iter().filter(|value| value.is_infinite()).count() as u64;
            norms.nan += nan;
            norms.infinite += infinite;
            let problem = format_args!("{column}: {nan} NaN, {infinite} infinite values");
            tallies.of("finite").add("not_finite", row, problem);
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
                tallies.of("norms").add("zero", row, problem);
            }
            return true;
        }
        if let (Some(changes), Some(outliers)) = (&mut self.changes, &mut self.outliers) {
            let zeros = changes.add(row, vector);
            if zeros * MAX_ZEROS > vector.len() {
                let values = vector.len();
                let problem = format_args!("{column}: {zeros} of {values} values are exactly zero");
                tallies.of("norms").add("zeros", row, problem);
            }
            let size = self
                .mean
                .map_or(norm, |mean| of_both_moments(all[mean], vector));
            outliers.add(place, row, vector, size);
            let (types, tally) = ((self.exact, self.tolerance), tallies.of("sequences"));
            let sequences = &mut self.findings.sequences;
            sequences.add(column, row, vector, size, types, tally);
        }
        true
    }

    /// What the file has of the column. `key` has the ordinal, the start and the id of the row at a place.
    pub(crate) fn finish<'a>(
        self,
        file: &str,
        key: impl Fn(usize) -> (u64, u32, &'a str),
        tallies: &mut Tallies,
    ) -> ColumnFindings {
        let column = self.findings.norms.column;
        if let Some(changes) = self.changes {
            changes.list_constant(column, file, self.exact, tallies.of("constant"));
        }
        if let Some(outliers) = self.outliers {
            if let Some(problem) = outliers.implausible() {
                let problem = format_args!("{file}: the median norm of {column} is {problem}");
                tallies.of("norms").add("scale", FILE, problem);
            }
            outliers.finish(column, key, tallies.of("outliers"));
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
    fn list_constant(&self, column: Column, file: &str, exact: bool, tally: &mut Tally) {
        if self.sequences.len() < MIN_VARYING {
            return;
        }
        let dimensions = self.changed_bits.iter().enumerate();
        let dimensions =
            dimensions.filter(|&(d, &changed)| changed == 0 && (exact || self.first[d] == 0.0));
        for (d, _) in dimensions {
            let (value, vectors) = (self.first[d], self.vectors);
            let problem = format_args!(
                "{file}: {column} is {value} in dimension {d} of all {vectors} vectors"
            );
            tally.add("constant", FILE, problem);
        }
    }
}

impl ColumnFindings {
    pub(crate) fn column(&self) -> Column {
        self.norms.column
    }

    pub(crate) fn merge(&mut self, other: Self, sequences: &mut Tally) {
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
            .merge(norms.column, other.sequences, sequences);
    }

    /// The norms, which are counted.
    pub(crate) fn finish(self, tallies: &mut Tallies) -> ColumnNorms {
        let norms = self.norms;
        tallies.of("norms").count("vectors", norms.vectors);
        let finite = tallies.of("finite");
        finite.count("vectors", norms.vectors);
        finite.count("nan", norms.nan);
        finite.count("infinite", norms.infinite);
        ColumnNorms {
            mean: (self.finite > 0).then(|| self.norm_sum / self.finite as f64),
            ..norms
        }
    }
}
