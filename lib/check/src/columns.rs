//! The values of each vector column: whether they are finite and not zero.

use plmkit_contract::{AMINO_ACIDS, Column, Pooling, RowKey, SCORES_POSITIONS};

use crate::check::Tallies;
use crate::checks::{finite, zero};
use crate::constant::Changes;
use crate::contacts;
use crate::criteria::Criteria;
use crate::difference::norm;
use crate::equal_sequences::EqualSequences;
use crate::files::EmbeddedFile;
use crate::outliers::Outliers;
use crate::tolerance::Tolerance;

/// One in so many values may be exactly zero in a vector that is not zero.
const MAX_ZEROS: usize = 16;

/// One column of the file that is being read.
#[derive(Debug)]
pub(crate) struct FileColumn {
    pub(crate) column: Column,
    /// The vectors so far.
    vectors: u64,
    sequences: EqualSequences,
    /// Of a deviation, which may be zero, only with the mean of its layer.
    outliers: Option<Outliers>,
    pub(crate) tolerance: Tolerance,
    /// Its place in the reference.
    pub(crate) reference: Option<usize>,
    /// Its place among the columns that were computed again, and that of the mean of its layer there.
    pub(crate) again: Option<usize>,
    pub(crate) again_mean: Option<usize>,
    /// How far its vectors are from those computed again.
    pub(crate) differences: Vec<f64>,
    /// The smallest cosine with one computed again.
    pub(crate) min_cosine: Option<f64>,
    /// Whether only some residues have scores.
    is_limited: bool,
    /// Of deviations, the place of the means of the layer, if they are there: the norm of both judges them.
    mean: Option<usize>,
    /// None where a row has more than one vector, and in layer 0: it knows no context, so that `<cls>` has the same vector in every
    /// protein, and many proteins share their largest values.
    changes: Option<Changes>,
}

impl FileColumn {
    pub(crate) fn new(column: Column, file: &EmbeddedFile, criteria: &Criteria) -> Self {
        let is_mean =
            |other: &Column| matches!(other, Column::Pooled { pool, .. } if *pool == Pooling::Mean);
        let mut columns = file.layout.columns.iter();
        let mean = columns.position(|other| is_mean(other) && other.layer() == column.layer());
        let (is_std, changes) = match column {
            Column::Pooled { pool, layer } => {
                (pool == Pooling::Std, (layer > 0).then(Changes::default))
            }
            _ => (false, None),
        };
        let mean = mean.filter(|_| is_std);
        let is_judged = changes.is_some() && (mean.is_some() || !is_std);
        let reference = criteria.reference.as_ref();
        let pairs = reference.map(|(reference, _)| reference.pair(&file.layout.columns));
        let mut pairs = pairs.into_iter().flatten();
        let again = |column| criteria.recomputed.as_ref()?.place(column);
        let pool = Pooling::Mean;
        let mean_of = |layer| again(Column::Pooled { pool, layer });
        Self {
            column,
            vectors: 0,
            sequences: EqualSequences::default(),
            outliers: is_judged.then(Outliers::default),
            tolerance: Tolerance::of(&file.provenance),
            reference: pairs
                .find(|(other, _)| *other == column)
                .and_then(|(_, place)| place),
            again: again(column),
            again_mean: column.layer().and_then(mean_of),
            differences: Vec::new(),
            min_cosine: None,
            is_limited: file.provenance.options.contains_key(SCORES_POSITIONS),
            mean,
            changes,
        }
    }

    /// Adds a vector of a row, which has these vectors in all columns. Returns whether it is finite.
    pub(crate) fn add(
        &mut self,
        row: &RowKey,
        vector: &[f32],
        all: &[&[f32]],
        tallies: &mut Tallies,
    ) -> bool {
        let column = self.column;
        if column == Column::Contacts {
            contacts::check(row, vector, tallies);
        }
        self.vectors += 1;
        let scored: Vec<f32>;
        let vector = if column == Column::LogProbs && self.is_limited {
            // A residue that was not masked has none.
            let residues = vector.chunks(AMINO_ACIDS.len());
            let residues = residues.filter(|values| !values.iter().all(|value| value.is_nan()));
            scored = residues.flatten().copied().collect();
            &scored
        } else {
            vector
        };
        // Squares of finite single-precision values cannot overflow a double-precision sum. Where no size is needed, the largest value
        // shows as much.
        let size = match self.changes {
            Some(_) => norm(vector),
            None => largest(vector).into(),
        };
        if !size.is_finite() {
            let nan = vector.iter().filter(|value| value.is_nan()).count();
            let infinite = vector.iter().filter(|value| value.is_infinite()).count();
            let problem = format_args!("{column}: {nan} NaN, {infinite} infinite values");
            tallies.add(finite::not_finite, row, problem);
            return false;
        }
        if size == 0.0 && !vector.is_empty() {
            // Equal residues deviate by zero, and a protein may have no contacts, or none of the twenty amino acids.
            let may_be_zero = match column {
                Column::Pooled { pool, .. } => pool == Pooling::Std,
                Column::Contacts | Column::LogLikelihood => true,
                Column::Residues(_) | Column::Logits | Column::LogProbs => false,
            };
            if !may_be_zero {
                let problem = format_args!("{column}: all values are zero");
                tallies.add(zero::zero, row, problem);
            }
            return true;
        }
        if let Some(changes) = &mut self.changes {
            let zeros = changes.add(row, vector);
            if zeros * MAX_ZEROS > vector.len() {
                let values = vector.len();
                let problem = format_args!("{column}: {zeros} of {values} values are exactly zero");
                tallies.add(zero::zeros, row, problem);
            }
            let size = self.mean.map_or(size, |mean| size.hypot(norm(all[mean])));
            if let Some(outliers) = &mut self.outliers {
                outliers.add(column, row, vector, size);
            }
            self.sequences
                .add(column, row, vector, size, self.tolerance, tallies);
        }
        true
    }

    /// What was sampled of the file, which has this name.
    pub(crate) fn finish(self, file: &str, tallies: &mut Tallies) -> EqualSequences {
        for kind in [finite::vectors, zero::vectors] {
            tallies.count(kind, self.vectors);
        }
        if let Some(outliers) = self.outliers {
            outliers.finish(self.column, tallies);
        }
        if let Some(changes) = self.changes {
            changes.list_constant(self.column, file, self.tolerance.is_exact, tallies);
        }
        self.sequences
    }
}

/// The value whose bits without the sign are the largest: of those that are no numbers or infinite, if there are any.
fn largest(vector: &[f32]) -> f32 {
    let bits = vector
        .iter()
        .map(|value| value.abs().to_bits().cast_signed());
    f32::from_bits(bits.fold(0, i32::max).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use plmkit_contract::Provenance;

    use super::*;

    #[test]
    fn residues_that_were_not_masked_have_no_scores() {
        let residue = [-3.0; AMINO_ACIDS.len()];
        let missing = [f32::NAN; AMINO_ACIDS.len()];
        let mut torn = residue;
        torn[7] = f32::NAN;
        let row = RowKey {
            ordinal: 0,
            id: "a",
            start: 0,
            length: 2,
            truncated: false,
            digest: plmkit_contract::SequenceDigest::default(),
            n_windows: 1,
        };
        let limited = Provenance::new("gpu-embed", Vec::new()).with(SCORES_POSITIONS, "a");
        for (provenance, residues, expected) in [
            (&limited, [residue, missing], true),
            (&limited, [missing, missing], true),
            (&limited, [torn, missing], false),
            (&limited, [[0.0; AMINO_ACIDS.len()], missing], true),
            (
                &Provenance::new("gpu-embed", Vec::new()),
                [residue, missing],
                false,
            ),
        ] {
            let file = EmbeddedFile::of("e", provenance.clone(), &["log_probs"]);
            let mut tallies = Tallies::default();
            let mut column = FileColumn::new(Column::LogProbs, &file, &Criteria::default());
            let vector = residues.concat();
            let is_finite = column.add(&row, &vector, &[&vector], &mut tallies);
            assert_eq!(is_finite, expected, "{residues:?}");
            let zeros = u64::from(residues[0][0] == 0.0);
            let zero = tallies.result("zero").counts.get("zero").copied();
            assert_eq!(zero.unwrap_or(0), zeros, "{residues:?}");
        }
    }
}
