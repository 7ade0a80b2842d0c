//! Whether a sample of the rows is what a second computation gives.

use std::collections::{HashMap, HashSet};

use plmkit_contract::{Column, EmbeddingLayout, Pooling, Provenance, RowKey, VOCABULARY, plural};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::look::median;
use crate::tolerance::{Tolerance, WORST_RESIDUE};
use crate::vector::dot;
use crate::violation::Violations;

/// The least root mean square contact: below, differences are of no account.
const LEAST_CONTACT: f64 = 0.01;

/// A sample of the rows, computed again.
#[derive(Debug, Default)]
pub struct Recomputed {
    /// The digest of the model.
    model: String,
    columns: Vec<Column>,
    /// By ordinal and start: a vector for each column.
    rows: HashMap<(u64, u32), Vec<Vec<f32>>>,
}

impl Recomputed {
    /// No rows yet, of these columns, computed by the model with this digest.
    pub fn new(model: String, columns: Vec<Column>) -> Self {
        Self {
            model,
            columns,
            ..Self::default()
        }
    }

    /// The digest of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Adds a row with a vector for each column.
    pub fn push(&mut self, key: (u64, u32), vectors: Vec<Vec<f32>>) {
        self.rows.insert(key, vectors);
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The vectors of a row, in the order of the columns.
    pub fn vectors(&self, key: (u64, u32)) -> Option<&[Vec<f32>]> {
        self.rows.get(&key).map(Vec::as_slice)
    }

    fn place(&self, column: Column) -> Option<usize> {
        self.columns.iter().position(|&known| known == column)
    }
}

/// How near the sampled vectors of a column are to the same computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpotAgreement {
    /// The column, or the file of golden vectors and the column.
    pub column: String,
    /// Vectors that were compared.
    pub vectors: usize,
    /// The median difference, as a share of the vector's size; null where no difference is a number.
    pub median_difference: Option<f64>,
    /// The largest.
    pub max_difference: Option<f64>,
    /// The largest that passes, by the type of the last file.
    pub tolerance: f64,
}

/// The differences of one column.
#[derive(Debug, Serialize, Deserialize)]
struct Differences {
    column: String,
    tolerance: f64,
    found: Vec<f32>,
}

/// What is compared in the file that is being read.
#[derive(Debug)]
pub(crate) struct SpotPlan {
    file: String,
    tolerance: Tolerance,
    columns: Vec<SpotColumn>,
}

/// A column of the file.
#[derive(Debug)]
struct SpotColumn {
    column: Column,
    /// Its place among the columns that were computed again.
    place: Option<usize>,
    /// The place of the mean of its layer there.
    mean: Option<usize>,
    differences: Vec<f64>,
}

/// Rows of a file that make a median.
const MIN_ROWS: usize = 8;

/// What was found in the sample.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SpotFindings {
    rows: u64,
    columns: Vec<Differences>,
    other_model: Violations,
    different: Violations,
    /// Columns of files whose median difference is too large.
    different_files: Violations,
    other_shape: Violations,
    not_computed: Violations,
    /// Columns of files that were not computed again.
    not_compared: Violations,
}

impl SpotPlan {
    /// Nothing is compared of a file that another model made.
    pub(crate) fn new(
        file: &str,
        model: &str,
        layout: &EmbeddingLayout,
        tolerance: Tolerance,
        recomputed: &Recomputed,
        findings: &mut SpotFindings,
    ) -> Option<Self> {
        if model != recomputed.model {
            findings.other_model.add_file(format_args!(
                "{file}: made with model {model}; computed again with {}",
                recomputed.model
            ));
            return None;
        }
        let columns = layout.columns.iter().map(|&column| {
            let place = recomputed.place(column);
            if place.is_none() {
                let problem = format_args!("{file}: {column} was not computed again");
                findings.not_compared.add_file(problem);
            }
            let mean = column.layer().and_then(|layer| {
                recomputed.place(Column::Pooled {
                    pool: Pooling::Mean,
                    layer,
                })
            });
            SpotColumn {
                column,
                place,
                mean,
                differences: Vec::new(),
            }
        });
        Some(Self {
            file: file.to_owned(),
            tolerance,
            columns: columns.collect(),
        })
    }
}

impl SpotFindings {
    /// Compares a row of the file with the same computed again, if there is one. If it is in the `sample`, there should be.
    pub(crate) fn add(
        &mut self,
        plan: &mut SpotPlan,
        recomputed: &Recomputed,
        sample: &HashSet<(u64, u32)>,
        row: &RowKey,
        vectors: &[&[f32]],
    ) {
        let Some(again) = recomputed.vectors(row.sort_key()) else {
            if sample.contains(&row.sort_key()) {
                let file = &plan.file;
                self.not_computed.add_row(
                    row,
                    format_args!("{file}: not among the rows that were computed again"),
                );
            }
            return;
        };
        self.rows += 1;
        let tolerance = plan.tolerance;
        for (spot, &found) in plan.columns.iter_mut().zip(vectors) {
            let column = spot.column;
            let Some(expected) = spot.place.map(|place| again[place].as_slice()) else {
                continue;
            };
            if found.len() != expected.len() {
                let (found, expected) = (found.len(), expected.len());
                let file = &plan.file;
                let problem =
                    format_args!("{file}: {column}: {found} values; computed again {expected}");
                self.other_shape.add_row(row, problem);
                continue;
            }
            let mean = spot.mean.map(|mean| again[mean].as_slice());
            let difference = difference(column, found, expected, mean, tolerance);
            let most = tolerance.of_each(column);
            spot.differences.push(difference);
            self.note(column.to_string(), difference, most);
            if is_beyond(difference, most) {
                let problem = problem(&plan.file, column, difference, most);
                self.different.add_row(row, problem);
            }
        }
    }

    /// Judges the file as a whole: single rows may be far, but not most.
    pub(crate) fn finish_file(&mut self, plan: SpotPlan) {
        for mut spot in plan.columns {
            let column = spot.column;
            let most = plan.tolerance.of_median(column);
            let enough = spot.differences.len() >= MIN_ROWS;
            let median = median(&mut spot.differences).filter(|_| enough);
            if let Some(median) = median.filter(|&median| is_beyond(median, most)) {
                let problem = problem(&plan.file, column, median, most);
                self.different_files
                    .add_file(format_args!("{problem}, in the median"));
            }
        }
    }

    /// Compares a golden vector of a protein with the same computed again, if it could be.
    pub(crate) fn add_golden(
        &mut self,
        file: &str,
        id: &str,
        column: Column,
        golden: &[f32],
        again: Option<&[f32]>,
    ) {
        let Some(again) = again else {
            let problem = "a golden vector, and rejected when it was computed again";
            self.not_computed.add(None, None, Some(id), problem);
            return;
        };
        if golden.len() != again.len() {
            let (found, expected) = (golden.len(), again.len());
            let problem = format_args!("{column}: {found} values; computed again {expected}");
            self.other_shape.add(None, None, Some(id), problem);
            return;
        }
        let exact = Tolerance::of(&Provenance::new("golden", Vec::new()));
        let difference = difference(column, golden, again, None, exact);
        let most = exact.of_each(column);
        self.note(format!("{file}: {column}"), difference, most);
        if is_beyond(difference, most) {
            let problem = problem(file, column, difference, most);
            self.different.add(None, None, Some(id), problem);
        }
    }

    /// The rows that were compared.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    fn note(&mut self, column: String, difference: f64, tolerance: f64) {
        let known = self.columns.iter().position(|known| known.column == column);
        let place = known.unwrap_or_else(|| {
            self.columns.push(Differences {
                column,
                tolerance,
                found: Vec::new(),
            });
            self.columns.len() - 1
        });
        self.columns[place].tolerance = tolerance;
        self.columns[place].found.push(difference as f32);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        for column in other.columns {
            for difference in column.found {
                self.note(
                    column.column.clone(),
                    f64::from(difference),
                    column.tolerance,
                );
            }
        }
        self.other_model.merge(other.other_model);
        self.different.merge(other.different);
        self.different_files.merge(other.different_files);
        self.other_shape.merge(other.other_shape);
        self.not_computed.merge(other.not_computed);
        self.not_compared.merge(other.not_compared);
    }

    /// The check `spot-check`, and how near each column is.
    pub(crate) fn finish(self) -> (Check, Vec<SpotAgreement>) {
        let agreements = self.columns.into_iter().map(|column| {
            let finite = column.found.iter().filter(|found| found.is_finite());
            let mut finite: Vec<f64> = finite.map(|&found| f64::from(found)).collect();
            SpotAgreement {
                column: column.column,
                vectors: column.found.len(),
                median_difference: median(&mut finite),
                max_difference: finite.iter().copied().reduce(f64::max),
                tolerance: column.tolerance,
            }
        });
        let agreements: Vec<SpotAgreement> = agreements.collect();
        let summary = format!(
            "{} computed again, {} vectors differ",
            plural(self.rows, "row"),
            self.different.count
        );
        let check = Check::judged(
            "spot-check",
            summary,
            [("rows", self.rows)],
            [
                ("other_model", self.other_model),
                ("different", self.different),
                ("different_files", self.different_files),
                ("other_shape", self.other_shape),
                ("not_computed", self.not_computed),
                ("not_compared", self.not_compared),
            ],
        );
        (check, agreements)
    }
}

/// Also of what is not a number.
fn is_beyond(difference: f64, most: f64) -> bool {
    difference.is_nan() || difference > most
}

fn problem(file: &str, column: Column, difference: f64, most: f64) -> String {
    format!(
        "{file}: {column} differs from the same computed again by {difference:.2e} of its size: expected at most {most:.1e}"
    )
}

/// How far a vector is from the same computed again, as a share of its size. `mean` is that of the layer, computed again.
fn difference(
    column: Column,
    found: &[f32],
    expected: &[f32],
    mean: Option<&[f32]>,
    tolerance: Tolerance,
) -> f64 {
    let distance = |x: &[f32], y: &[f32]| distance(x, y, tolerance.rounding);
    match column {
        Column::Pooled { pool, .. } => {
            let mean = mean.filter(|_| pool == Pooling::Std).map_or(0.0, norm);
            let size = norm(expected).max(tolerance.std_floor * mean);
            share(distance(found, expected), size)
        }
        Column::Residues(_) => {
            let width = mean.map_or(expected.len(), <[f32]>::len).max(1);
            let residues = (expected.len() / width) as f64;
            let size = norm(expected);
            let pairs = found.chunks(width).zip(expected.chunks(width));
            let worst = pairs.map(|(x, y)| distance(x, y)).fold(0.0, nan_max);
            let worst = share(worst * residues.sqrt(), size) / WORST_RESIDUE;
            nan_max(share(distance(found, expected), size), worst)
        }
        // Of each token alone: some hardly ever have a chance, and the others hide them.
        Column::Logits => {
            let count = expected.len() as f64;
            let middle = expected.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
            let squares = expected
                .iter()
                .map(|&value| (f64::from(value) - middle).powi(2));
            let size = (squares.sum::<f64>() / VOCABULARY as f64).sqrt();
            let token = |values: &[f32], token: usize| -> Vec<f32> {
                values
                    .iter()
                    .skip(token)
                    .step_by(VOCABULARY)
                    .copied()
                    .collect()
            };
            let differences =
                (0..VOCABULARY).map(|at| distance(&token(found, at), &token(expected, at)));
            share(differences.fold(0.0, nan_max), size)
        }
        Column::Contacts => {
            let size = norm(expected).max(LEAST_CONTACT * (expected.len() as f64).sqrt());
            share(distance(found, expected), size)
        }
    }
}

/// The larger of two; what is not a number is larger than any.
fn nan_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// No share of no size, unless there is no difference.
fn share(difference: f64, size: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else {
        difference / size
    }
}

fn norm(vector: &[f32]) -> f64 {
    dot(vector, vector).sqrt()
}

/// The distance beyond what rounding by this share of each value may change. Below the smallest normal number of f16, rounding is
/// absolute.
fn distance(found: &[f32], expected: &[f32], rounding: f64) -> f64 {
    const LEAST_NORMAL_F16: f64 = 6.103_515_625e-5;
    let pairs = found.iter().zip(expected);
    let squares = pairs.map(|(&x, &y)| {
        let (x, y) = (f64::from(x), f64::from(y));
        let difference = (x - y).abs();
        // What is not a number stays so.
        let beyond = difference - rounding * y.abs().max(LEAST_NORMAL_F16);
        if beyond < 0.0 { 0.0 } else { beyond * beyond }
    });
    squares.sum::<f64>().sqrt()
}
