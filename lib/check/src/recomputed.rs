//! Whether a sample of the rows is what a second computation gives.

use std::collections::{HashMap, HashSet};

use plmkit_contract::{Column, Pooling, Provenance, RowKey, VOCABULARY};
use serde::{Deserialize, Serialize};

use crate::EmbeddedFile;
use crate::check::Tally;
use crate::difference::difference;
use crate::tolerance::Tolerance;
use crate::vector::median;
use crate::violation::{FILE, Place};

/// Rows of a file that make a median.
const MIN_ROWS: usize = 8;

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
pub struct RecomputedAgreement {
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

/// The differences of one column, over the files so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecomputedColumn {
    name: String,
    tolerance: f64,
    differences: Vec<f32>,
}

/// The check `spot-check` of the file that is being read.
#[derive(Debug)]
pub(crate) struct RecomputedFile<'a> {
    name: String,
    recomputed: &'a Recomputed,
    /// The values in the logits of a residue.
    logits: usize,
    tolerance: Tolerance,
    columns: Vec<ComparedColumn>,
}

/// A column of the file.
#[derive(Debug)]
struct ComparedColumn {
    column: Column,
    /// Its place among the columns that were computed again.
    place: Option<usize>,
    /// The place of the mean of its layer there.
    mean: Option<usize>,
    differences: Vec<f64>,
}

impl<'a> RecomputedFile<'a> {
    /// Nothing is compared of a file that another model made.
    pub(crate) fn new(
        file: &EmbeddedFile,
        recomputed: &'a Recomputed,
        tally: &mut Tally,
    ) -> Option<Self> {
        let name = &file.name;
        let model = file.provenance.text_option("model").unwrap_or("unknown");
        if model != recomputed.model {
            let again = &recomputed.model;
            let problem =
                format_args!("{name}: made with model {model}; computed again with {again}");
            tally.add("other_model", FILE, problem);
            return None;
        }
        let columns = file.layout.columns.iter().map(|&column| {
            let place = recomputed.place(column);
            if place.is_none() {
                let problem = format_args!("{name}: {column} was not computed again");
                tally.add("not_compared", FILE, problem);
            }
            let mean = |layer| {
                let pool = Pooling::Mean;
                recomputed.place(Column::Pooled { pool, layer })
            };
            ComparedColumn {
                column,
                place,
                mean: column.layer().and_then(mean),
                differences: Vec::new(),
            }
        });
        Some(Self {
            columns: columns.collect(),
            name: name.clone(),
            recomputed,
            logits: file.layout.logits,
            tolerance: Tolerance::of(&file.provenance),
        })
    }

    /// Compares a row of the file with the same computed again, if there is one. If it is in the `sample`, there should be.
    pub(crate) fn add(
        &mut self,
        sample: &HashSet<(u64, u32)>,
        row: &RowKey,
        vectors: &[&[f32]],
        tally: &mut Tally,
    ) {
        let file = &self.name;
        let Some(again) = self.recomputed.vectors(row.sort_key()) else {
            if sample.contains(&row.sort_key()) {
                let problem = format_args!("{file}: not among the rows that were computed again");
                tally.add("not_computed", row, problem);
            }
            return;
        };
        tally.count("rows", 1);
        for (compared, &found) in self.columns.iter_mut().zip(vectors) {
            let Some(expected) = compared.place.map(|place| again[place].as_slice()) else {
                continue;
            };
            let mean = compared.mean.map(|mean| again[mean].as_slice());
            let (column, tolerance) = (compared.column, self.tolerance);
            let difference = compare(
                file,
                column,
                row.into(),
                (found, expected, mean),
                (self.logits, tolerance),
                tally,
            );
            compared.differences.extend(difference);
        }
    }

    /// Judges the file as a whole: single rows may be far, but not most.
    pub(crate) fn finish(self, all: &mut Vec<RecomputedColumn>, tally: &mut Tally) {
        for mut compared in self.columns {
            let column = compared.column;
            let found = compared.differences.iter();
            let column_of_all = RecomputedColumn {
                name: column.to_string(),
                tolerance: self.tolerance.of_each(column),
                differences: found.map(|&difference| difference as f32).collect(),
            };
            column_of_all.add_to(all);
            let most = self.tolerance.of_median(column);
            let enough = compared.differences.len() >= MIN_ROWS;
            let median = median(&mut compared.differences).filter(|_| enough);
            if let Some(median) = median.filter(|&median| is_beyond(median, most)) {
                let problem = problem(&self.name, column, median, most);
                let problem = format_args!("{problem}, in the median");
                tally.add("different_files", FILE, problem);
            }
        }
    }
}

/// The difference between a vector and the same computed again, which is judged. The third is the mean of the layer, computed again.
fn compare(
    file: &str,
    column: Column,
    place: Place<'_>,
    (found, expected, mean): (&[f32], &[f32], Option<&[f32]>),
    (logits, tolerance): (usize, Tolerance),
    tally: &mut Tally,
) -> Option<f64> {
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        let problem = format_args!("{file}: {column}: {found} values; computed again {expected}");
        tally.add("other_shape", place, problem);
        return None;
    }
    let difference = difference(column, found, expected, mean, logits, tolerance);
    let most = tolerance.of_each(column);
    if is_beyond(difference, most) {
        tally.add("different", place, problem(file, column, difference, most));
    }
    Some(difference)
}

/// Compares a golden vector of a protein with the same computed again, if it could be.
pub(crate) fn compare_golden(
    file: &str,
    id: &str,
    column: Column,
    golden: &[f32],
    again: Option<&[f32]>,
    all: &mut Vec<RecomputedColumn>,
    tally: &mut Tally,
) {
    let place = Place {
        id: Some(id),
        ..FILE
    };
    let Some(again) = again else {
        let problem = "a golden vector, and rejected when it was computed again";
        return tally.add("not_computed", place, problem);
    };
    let exact = Tolerance::of(&Provenance::new("golden", Vec::new()));
    let vectors = (golden, again, None);
    let difference = compare(file, column, place, vectors, (VOCABULARY, exact), tally);
    let compared = RecomputedColumn {
        name: format!("{file}: {column}"),
        tolerance: exact.of_each(column),
        differences: difference.into_iter().map(|found| found as f32).collect(),
    };
    compared.add_to(all);
}

impl RecomputedColumn {
    /// Adds the differences to those of the same column.
    pub(crate) fn add_to(self, all: &mut Vec<Self>) {
        if self.differences.is_empty() {
            return;
        }
        match all.iter_mut().find(|known| known.name == self.name) {
            Some(known) => {
                known.tolerance = self.tolerance;
                known.differences.extend(self.differences);
            }
            None => all.push(self),
        }
    }

    pub(crate) fn finish(self) -> RecomputedAgreement {
        let finite = self.differences.iter().filter(|found| found.is_finite());
        let mut finite: Vec<f64> = finite.map(|&found| f64::from(found)).collect();
        RecomputedAgreement {
            column: self.name,
            vectors: self.differences.len(),
            median_difference: median(&mut finite),
            max_difference: finite.iter().copied().reduce(f64::max),
            tolerance: self.tolerance,
        }
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
