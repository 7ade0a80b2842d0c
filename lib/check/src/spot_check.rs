//! The check `spot-check`: whether a sample of the rows is what a second computation gives. How far two vectors are apart is in
//! `difference.rs`, how far they may be in `tolerance.rs`.

use std::collections::HashSet;

use plmkit_contract::{Column, Pooling, RowKey, SCORES_POSITIONS};

use crate::EmbeddedFile;
use crate::agreement::ColumnAgreement;
use crate::check::Tally;
use crate::difference::difference;
use crate::recomputed::Recomputed;
use crate::tolerance::Tolerance;
use crate::vector::median;
use crate::violation::FILE;

/// Rows of a file that make a median.
const MIN_ROWS: usize = 8;

/// The check `spot-check` of the file that is being read.
#[derive(Debug)]
pub(crate) struct SpotCheck<'a> {
    again: &'a Recomputed,
    /// The values in the logits of a residue.
    logits: usize,
    tolerance: Tolerance,
    columns: Vec<ComparedColumn>,
}

/// A column of the file.
#[derive(Debug)]
struct ComparedColumn {
    /// Its place among the columns that were computed again.
    place: Option<usize>,
    /// The place of the mean of its layer there.
    mean: Option<usize>,
    column: Column,
    differences: Vec<f64>,
}

impl<'a> SpotCheck<'a> {
    pub(crate) fn new(file: &EmbeddedFile, again: &'a Recomputed, tally: &mut Tally) -> Self {
        let tolerance = Tolerance::of(&file.provenance);
        let columns = file.layout.columns.iter().map(|&column| {
            let place = again.place(column);
            // The mean over a few residues is no measure of that over all, and their values are compared.
            let is_of_few = column == Column::LogLikelihood
                && again.made_by.options.contains_key(SCORES_POSITIONS);
            let place = place.filter(|_| !is_of_few);
            if place.is_none() && !is_of_few {
                let problem = format_args!("{}: {column} was not computed again", file.name);
                tally.add("not_compared", FILE, problem);
            }
            let pool = Pooling::Mean;
            let mean = |layer| again.place(Column::Pooled { pool, layer });
            ComparedColumn {
                place,
                mean: column.layer().and_then(mean),
                column,
                differences: Vec::new(),
            }
        });
        Self {
            columns: columns.collect(),
            again,
            logits: file.layout.logits,
            tolerance,
        }
    }

    /// Compares a row of the file with the same computed again, if there is one. If it is in the `sample`, there should be.
    pub(crate) fn add(
        &mut self,
        file: &str,
        sample: &HashSet<(u64, u32)>,
        row: &RowKey,
        vectors: &[&[f32]],
        tally: &mut Tally,
    ) {
        let Some(again) = self.again.rows.get(&row.sort_key()) else {
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
            let column = compared.column;
            if found.len() != expected.len() {
                let (found, expected) = (found.len(), expected.len());
                let problem =
                    format_args!("{file}: {column}: {found} values; computed again {expected}");
                tally.add("different", row, problem);
                continue;
            }
            let mean = compared.mean.map(|mean| again[mean].as_slice());
            let difference = difference(column, found, expected, mean, self.logits, self.tolerance);
            if let Some(problem) = beyond(file, column, difference, self.tolerance.of_each(column))
            {
                tally.add("different", row, problem);
            }
            compared.differences.push(difference);
        }
    }

    /// Judges the file as a whole: single rows may be far, but not most.
    pub(crate) fn finish(self, file: &str, all: &mut Vec<ColumnAgreement>, tally: &mut Tally) {
        for ComparedColumn {
            column,
            mut differences,
            ..
        } in self.columns
        {
            let judged = median(&mut differences).filter(|_| differences.len() >= MIN_ROWS);
            let most = self.tolerance.of_median(column);
            if let Some(problem) = judged.and_then(|median| beyond(file, column, median, most)) {
                let problem = format_args!("{problem}, in the median");
                tally.add("different_files", FILE, problem);
            }
            let vectors = differences.len() as u64;
            differences.retain(|difference| difference.is_finite());
            let agreement = ColumnAgreement {
                column,
                vectors,
                min_cosine: None,
                median_difference: median(&mut differences),
                max_difference: differences.into_iter().reduce(f64::max),
                tolerance: Some(self.tolerance.of_each(column)),
            };
            if vectors > 0 {
                agreement.add_to(all);
            }
        }
    }
}

/// What is wrong with a difference that is larger than `most`, or no number.
fn beyond(file: &str, column: Column, difference: f64, most: f64) -> Option<String> {
    let is_beyond = difference.is_nan() || difference > most;
    is_beyond.then(|| {
        format!(
            "{file}: {column} differs from the recomputed one by {difference:.2e} of its size: expected at most {most:.1e}"
        )
    })
}
