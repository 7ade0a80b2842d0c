//! The values of each vector column: whether they are finite, how long vectors are, and how they scatter.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use plmkit_contract::{Column, Pooling, RowKey, StoreDtype};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::histogram::Histogram;
use crate::outliers::{Extreme, OutlierFindings, Outliers};
use crate::pilot::Pilot;
use crate::sequences::{SequenceViolations, Sequences};
use crate::vector::dot;
use crate::violation::Violations;

/// Sequences that a file needs before a dimension that never changes is a fault.
const MIN_VARYING: usize = 16;

/// One in so many values may be exactly zero in a vector that is not zero.
const MAX_ZEROS: usize = 16;

/// The median norms that a model may give. Layer norms keep values of the order of 1; a broken one leaves its epsilon.
const SIZES: RangeInclusive<f64> = 1e-3..=1e6;

/// Whether a column has standard deviations, which are small or zero in repeats.
pub(crate) fn is_deviation(column: Column) -> bool {
    matches!(column, Column::Pooled(name) if name.pool == Pooling::Std)
}

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
    /// The smallest Euclidean norm of a finite vector; null, as all that follow, when there is none.
    pub min: Option<f64>,
    /// The norm that 1 % of the finite vectors do not exceed, to 1 %.
    pub q01: Option<f64>,
    /// The norm that half of the finite vectors do not exceed, to 1 %.
    pub median: Option<f64>,
    /// The norm that 99 % of the finite vectors do not exceed, to 1 %.
    pub q99: Option<f64>,
    /// The mean norm of the finite vectors.
    pub mean: Option<f64>,
    /// The largest norm of a finite vector.
    pub max: Option<f64>,
}

/// One column, over the files so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ColumnFindings {
    norms: ColumnNorms,
    norm_sum: f64,
    histogram: Histogram,
    sequences: Sequences,
    /// Centre and spread of the vectors of each file.
    pub(crate) centres: Vec<Centre>,
}

/// Where the vectors of one column of one file lie.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Centre {
    pub(crate) file: String,
    pub(crate) vectors: u64,
    /// `(dim)`.
    pub(crate) mean: Vec<f32>,
    /// Standard deviation over vectors: `(dim)`.
    pub(crate) spread: Vec<f32>,
    /// The median norm, to 1 %.
    pub(crate) median_norm: f64,
}

/// What is wrong with vectors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct VectorViolations {
    pub(crate) not_finite: Violations,
    pub(crate) zero: Violations,
    pub(crate) zeros: Violations,
    pub(crate) scale: Violations,
    pub(crate) constant: Violations,
    pub(crate) outliers: OutlierFindings,
    pub(crate) sequences: SequenceViolations,
}

/// One column of the file that is being read.
#[derive(Debug)]
pub(crate) struct FileColumn {
    findings: ColumnFindings,
    /// Whether values are as exact as f32: in other types, proteins that are nearly the same have the same vector.
    exact: bool,
    /// None where a row has more than one vector, and in layer 0.
    scatter: Option<Scatter>,
}

/// How the vectors of a column of one file scatter.
#[derive(Debug)]
struct Scatter {
    pilot: Pilot,
    outliers: Outliers,
    vectors: u64,
    /// Digests of different sequences, as many as [`MIN_VARYING`] at most.
    sequences: HashSet<u64>,
    /// Sums of deviations from the pilot's centre, in its spreads, and of their squares: `(dim)`.
    sums: Vec<f64>,
    squares: Vec<f64>,
    first: Vec<f32>,
    /// Of the vector that is being added: its deviations from the centre, in spreads.
    deviations: Vec<f32>,
    /// Bits in which a value has differed from the first: `(dim)`.
    changed_bits: Vec<u32>,
}

impl FileColumn {
    /// A column of which `sample` are some vectors.
    pub(crate) fn new(
        column: Column,
        sample: &[&[f32]],
        dim: usize,
        dtype: StoreDtype,
        computed: &str,
    ) -> Self {
        // Layer 0 knows no context: `<cls>` has the same vector in every protein, and many proteins share their largest values.
        let pooled = matches!(column, Column::Pooled(vector) if vector.layer > 0);
        let scatter = pooled.then(|| Scatter::new(Pilot::new(sample, dim, dtype)));
        let sequences = scatter
            .as_ref()
            .map(|scatter| Sequences::new(&scatter.pilot));
        Self {
            findings: ColumnFindings {
                norms: ColumnNorms {
                    column,
                    vectors: 0,
                    nan: 0,
                    infinite: 0,
                    zero: 0,
                    min: None,
                    q01: None,
                    median: None,
                    q99: None,
                    mean: None,
                    max: None,
                },
                norm_sum: 0.0,
                histogram: Histogram::default(),
                sequences: sequences.unwrap_or_default(),
                centres: Vec::new(),
            },
            exact: dtype == StoreDtype::F32 && computed == "f32",
            scatter,
        }
    }

    /// Adds the vector of a row. Returns its norm if it is finite.
    pub(crate) fn add(
        &mut self,
        row: &RowKey,
        vector: &[f32],
        violations: &mut VectorViolations,
    ) -> Option<f64> {
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
            return None;
        }
        norms.min = Some(norms.min.map_or(norm, |min| min.min(norm)));
        norms.max = Some(norms.max.map_or(norm, |max| max.max(norm)));
        self.findings.norm_sum += norm;
        self.findings.histogram.add(norm);
        if norm == 0.0 {
            norms.zero += 1;
            // Equal residues deviate by zero, and a protein may have no contacts.
            let may_be_zero = match column {
                Column::Pooled(name) => name.pool == Pooling::Std,
                Column::Contacts => true,
                Column::Residues(_) | Column::Logits => false,
            };
            if !may_be_zero {
                let problem = format_args!("{column}: all values are zero");
                violations.zero.add_row(row, problem);
            }
        } else if let Some(scatter) = &mut self.scatter {
            let zeros = scatter.add(row, vector, norm);
            // The largest values and the deviations of a repeat point elsewhere.
            let directed = matches!(column, Column::Pooled(name) if matches!(name.pool, Pooling::Mean | Pooling::Bos));
            let odd = scatter.pilot.odd_cosine(vector, norm);
            if let Some(cosine) = odd.filter(|_| directed) {
                let problem =
                    format_args!("{column}: cosine {cosine:.3} with the centre of the file");
                violations.outliers.directions.add_row(row, problem);
            }
            if zeros * MAX_ZEROS > vector.len() {
                let problem = format_args!(
                    "{column}: {zeros} of {} values are exactly zero",
                    vector.len()
                );
                violations.zeros.add_row(row, problem);
            }
            let found = &mut violations.sequences;
            self.findings
                .sequences
                .add(column, row, vector, self.exact, found);
        }
        Some(norm)
    }

    pub(crate) fn column(&self) -> Column {
        self.findings.norms.column
    }

    /// Whether rows have one vector each, which depends on the protein.
    pub(crate) fn is_scattered(&self) -> bool {
        self.scatter.is_some()
    }

    /// What the file has of the column.
    pub(crate) fn finish(self, file: &str, violations: &mut VectorViolations) -> ColumnFindings {
        let mut findings = self.findings;
        if let Some(scatter) = self.scatter {
            let column = findings.norms.column;
            scatter.list_constant(column, file, self.exact, &mut violations.constant);
            let median = findings.histogram.quantile(0.5);
            // Deviations of repeats may be as small.
            let implausible = |size: &f64| !is_deviation(column) && !SIZES.contains(size);
            if let Some(median) = median.filter(implausible) {
                violations.scale.add_file(format_args!(
                    "{file}: the median norm of {column} is {median:.1e}: expected {:.0e} to {:.0e}",
                    SIZES.start(),
                    SIZES.end()
                ));
            }
            findings
                .centres
                .push(scatter.centre(file, median.unwrap_or_default()));
            scatter.outliers.finish(column, &mut violations.outliers);
        }
        findings
    }
}

impl Scatter {
    fn new(pilot: Pilot) -> Self {
        let dim = pilot.centre.len();
        Self {
            pilot,
            outliers: Outliers::default(),
            vectors: 0,
            sequences: HashSet::new(),
            sums: vec![0.0; dim],
            squares: vec![0.0; dim],
            first: Vec::new(),
            deviations: vec![0.0; dim],
            changed_bits: vec![0; dim],
        }
    }

    /// Adds a vector that is finite and not zero. Returns how many of its values are zero.
    fn add(&mut self, row: &RowKey, vector: &[f32], norm: f64) -> usize {
        self.vectors += 1;
        if self.sequences.len() < MIN_VARYING {
            self.sequences.insert(row.digest.hash());
        }
        if self.vectors == 1 {
            self.first = vector.to_vec();
        }
        let dim = vector.len();
        // Of one length, so that the compiler sees that no index is out of bounds.
        let (centre, inverse) = (&self.pilot.centre[..dim], &self.pilot.inverse_spread[..dim]);
        let (sums, squares) = (&mut self.sums[..dim], &mut self.squares[..dim]);
        let (first, changed_bits) = (&self.first[..dim], &mut self.changed_bits[..dim]);
        let deviations = &mut self.deviations[..dim];
        let mut zeros = 0_u32;
        for d in 0..dim {
            let z = f64::from((vector[d] - centre[d]) * inverse[d]);
            deviations[d] = z as f32;
            sums[d] += z;
            squares[d] += z * z;
            changed_bits[d] |= vector[d].to_bits() ^ first[d].to_bits();
            zeros += u32::from(vector[d] == 0.0);
        }
        let distance = (dot(&self.deviations, &self.deviations) / dim as f64).sqrt();
        self.outliers.add(row, norm, distance);
        zeros as usize
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

    fn centre(&self, file: &str, median_norm: f64) -> Centre {
        let count = self.vectors.max(1) as f64;
        let dimensions = self.sums.iter().zip(&self.squares);
        let moments = dimensions.map(|(sum, square)| {
            let mean = sum / count;
            (mean, (square / count - mean * mean).max(0.0).sqrt())
        });
        let pilot = self.pilot.centre.iter().zip(&self.pilot.inverse_spread);
        let (mean, spread) = moments
            .zip(pilot)
            .map(|((mean, spread), (&centre, &inverse))| {
                let unit = 1.0 / f64::from(inverse);
                (
                    (f64::from(centre) + mean * unit) as f32,
                    (spread * unit) as f32,
                )
            })
            .unzip();
        Centre {
            file: file.to_owned(),
            vectors: self.vectors,
            mean,
            spread,
            median_norm,
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
        self.histogram.merge(&other.histogram);
        self.sequences
            .merge(norms.column, other.sequences, violations);
        self.centres.extend(other.centres);
    }

    /// Vectors of sequences that were there before.
    pub(crate) fn repeated(&self) -> u64 {
        self.sequences.repeated
    }

    /// The distribution of norms.
    pub(crate) fn norms(self) -> ColumnNorms {
        let finite = self.histogram.total();
        let (least, most) = (self.norms.min, self.norms.max);
        let quantile = |share: f64| {
            let value = self.histogram.quantile(share)?;
            Some(value.max(least?).min(most?))
        };
        ColumnNorms {
            q01: quantile(0.01),
            median: quantile(0.5),
            q99: quantile(0.99),
            mean: (finite > 0).then(|| self.norm_sum / finite as f64),
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
        self.outliers.merge(other.outliers);
        self.sequences.merge(other.sequences);
    }

    /// The checks `finite`, `norms`, `constant`, `outliers` and `sequences`, and the rows that are farthest from the others.
    pub(crate) fn finish(self, columns: &[ColumnFindings]) -> ([Check; 5], Vec<Extreme>) {
        let sum = |count: fn(&ColumnNorms) -> u64| -> u64 {
            columns.iter().map(|column| count(&column.norms)).sum()
        };
        let vectors = sum(|column| column.vectors);
        let of_vectors = plmkit_contract::plural(vectors, "vector");
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
                plmkit_contract::plural(self.scale.count, "column")
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
        let (outliers, extremes) = self.outliers.finish();
        let sequences = self.sequences.finish(repeated);
        ([finite, norms, constant, outliers, sequences], extremes)
    }
}
