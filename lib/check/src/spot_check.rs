//! The check `spot-check`: whether a sample of the rows is what a second computation gives. How far two vectors are apart is in
//! `difference.rs`, how far they may be in `tolerance.rs`.

use plmkit_contract::{Column, RowKey, SCORES_POSITIONS};

use crate::agreement::ColumnAgreement;
use crate::check::Tallies;
use crate::checks::spot_check;
use crate::columns::FileColumn;
use crate::criteria::Recomputed;
use crate::difference::difference;
use crate::files::EmbeddedFile;
use crate::sample::LEAST;
use crate::vector::{cosine, median};
use crate::violation::FILE;

impl FileColumn {
    /// Begins the comparison with rows that were computed again, which should have the column.
    pub(crate) fn begin_again(
        &mut self,
        file: &EmbeddedFile,
        again: &Recomputed,
        tallies: &mut Tallies,
    ) {
        // The mean over a few residues is no measure of that over all, and their values are compared.
        if self.column == Column::LogLikelihood
            && again.made_by.options.contains_key(SCORES_POSITIONS)
        {
            self.again = None;
        } else if self.again.is_none() {
            let problem = format_args!("{}: {} was not computed again", file.name, self.column);
            tallies.add(spot_check::not_compared, FILE, problem);
        }
    }

    /// Compares a vector of the file with those of the row that were computed `again`.
    pub(crate) fn compare_again(
        &mut self,
        file: &EmbeddedFile,
        row: &RowKey,
        found: &[f32],
        again: &[Vec<f32>],
        tallies: &mut Tallies,
    ) {
        let (name, column) = (&file.name, self.column);
        let Some(expected) = self.again.map(|place| again[place].as_slice()) else {
            return;
        };
        if found.len() != expected.len() {
            let (found, expected) = (found.len(), expected.len());
            let problem =
                format_args!("{name}: {column}: {found} values; computed again {expected}");
            return tallies.add(spot_check::different, row, problem);
        }
        let mean = self.again_mean.map(|mean| again[mean].as_slice());
        let logits = file.layout.logits;
        let difference = difference(column, found, expected, mean, logits, self.tolerance);
        if let Some(problem) = beyond(name, column, difference, self.tolerance.of_each(column)) {
            tallies.add(spot_check::different, row, problem);
        }
        self.differences.push(difference);
        let cosines = self.min_cosine.into_iter().chain(cosine(found, expected));
        self.min_cosine = cosines.reduce(f64::min);
    }

    /// Judges the column of the file as a whole: single rows may be far, but not most.
    pub(crate) fn judge_again(
        &mut self,
        file: &str,
        all: &mut Vec<ColumnAgreement>,
        tallies: &mut Tallies,
    ) {
        let (column, mut differences) = (self.column, std::mem::take(&mut self.differences));
        let judged = median(&mut differences).filter(|_| differences.len() as u64 >= LEAST);
        let most = self.tolerance.of_median(column);
        if let Some(problem) = judged.and_then(|median| beyond(file, column, median, most)) {
            let problem = format_args!("{problem}, in the median");
            tallies.add(spot_check::different_files, FILE, problem);
        }
        let vectors = differences.len() as u64;
        differences.retain(|difference| difference.is_finite());
        let agreement = ColumnAgreement {
            column,
            vectors,
            min_cosine: self.min_cosine.take(),
            median_difference: median(&mut differences),
            max_difference: differences.into_iter().reduce(f64::max),
            tolerance: Some(self.tolerance.of_each(column)),
        };
        if vectors > 0 {
            agreement.add_to(all);
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
