//! How close embeddings are to a reference.

use std::collections::BTreeSet;

use plmkit_contract::{Column, RowKey, plural};
use serde::Serialize;

use crate::check::Tally;
use crate::difference::{distance, norm};
use crate::reference::Reference;
use crate::vector::cosine;
use crate::violation::{FILE, Place};

/// How close the vectors of a column are to others of the same rows, over the files so far. What was not measured is left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnAgreement {
    /// The column.
    pub column: Column,
    /// Vectors that were compared.
    pub vectors: u64,
    /// The smallest cosine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cosine: Option<f64>,
    /// The largest median difference of a file, as a share of the size of the other vector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_difference: Option<f64>,
    /// The largest difference: cosines do not see a wrong scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_difference: Option<f64>,
    /// The largest difference that passes, by the dtype of the last file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
}

impl ColumnAgreement {
    /// Adds that of other files to that of the same column.
    pub(crate) fn add_to(self, all: &mut Vec<Self>) {
        let Some(known) = all.iter_mut().find(|known| known.column == self.column) else {
            return all.push(self);
        };
        let of_both = |one: Option<f64>, other: Option<f64>, worse: fn(f64, f64) -> f64| {
            one.into_iter().chain(other).reduce(worse)
        };
        *known = Self {
            vectors: known.vectors + self.vectors,
            min_cosine: of_both(known.min_cosine, self.min_cosine, f64::min),
            median_difference: of_both(known.median_difference, self.median_difference, f64::max),
            max_difference: of_both(known.max_difference, self.max_difference, f64::max),
            ..self
        };
    }
}

/// How the rows so far compare with a reference.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// The rows of the reference that were found, by id and start.
    found: BTreeSet<(String, u32)>,
    pub(crate) columns: Vec<ColumnAgreement>,
}

impl Agreement {
    pub(crate) fn merge(&mut self, other: Self) {
        self.found.extend(other.found);
        for column in other.columns {
            column.add_to(&mut self.columns);
        }
    }

    /// Compares the vectors of one row, which must have this cosine at least. Each is of a column, and the reference has it at a place,
    /// if at all.
    pub(crate) fn add(
        &mut self,
        (reference, min_cosine): &(Reference, f64),
        row: &RowKey,
        columns: &[(Column, Option<usize>)],
        vectors: &[&[f32]],
        tally: &mut Tally,
    ) {
        let key = (row.id.to_owned(), row.start);
        let Some(expected) = reference.rows.get(&key) else {
            tally.count("not_in_reference", 1);
            return;
        };
        self.found.insert(key);
        tally.count("compared", 1);
        for (&(column, at), found) in columns.iter().zip(vectors) {
            let Some(expected) = at.map(|at| &expected[at]) else {
                continue;
            };
            if found.len() != expected.len() {
                let values = plural(expected.len(), "value");
                let found = found.len();
                let problem = format_args!(
                    "{column}: the reference has {values}, the embeddings have {found}"
                );
                tally.add("other_dimension", row, problem);
                continue;
            }
            let Some(cosine) = cosine(found, expected) else {
                tally.add("undefined", row, format_args!("{column}: no cosine"));
                continue;
            };
            if cosine < *min_cosine {
                let problem =
                    format_args!("{column}: cosine {cosine:.7}, expected at least {min_cosine}");
                tally.add("below", row, problem);
            }
            // A cosine does not see a wrong scale: lengths may differ by as much as a cosine lets vectors of one length be apart.
            let (scale, most) = (norm(found) / norm(expected), apart(*min_cosine));
            if *min_cosine > 0.0 && (scale - 1.0).abs() > most {
                let problem = format_args!(
                    "{column}: {scale:.6} times as long as in the reference, expected 1 ± {most:.2e}"
                );
                tally.add("other_norm", row, problem);
            }
            let difference = distance(found, expected, 0.0) / norm(expected);
            let agreement = ColumnAgreement {
                column,
                vectors: 1,
                min_cosine: Some(cosine),
                median_difference: None,
                // Of two zero vectors.
                max_difference: Some(if difference.is_nan() { 0.0 } else { difference }),
                tolerance: None,
            };
            agreement.add_to(&mut self.columns);
        }
    }

    /// The check `reference`, where these ids may be missing.
    pub(crate) fn check(
        &self,
        reference: &Reference,
        is_rejected: impl Fn(&str) -> bool,
        tally: &mut Tally,
    ) {
        let keys = reference.rows.keys();
        for (id, start) in keys.filter(|key| !self.found.contains(*key)) {
            if is_rejected(id) {
                tally.count("rejected", 1);
                continue;
            }
            let place = Place {
                start: Some(*start),
                id: Some(id),
                ..FILE
            };
            tally.add("not_found", place, "not in the embeddings");
        }
        if tally.counted("compared") == 0 {
            let problem = "no row has an id of the reference";
            tally.add("nothing_compared", FILE, problem);
        }
    }
}

/// The distance of two vectors of length 1 with this cosine; that of f32's rounding at least.
fn apart(cosine: f64) -> f64 {
    (2.0 * (1.0 - cosine)).sqrt().max(f64::from(f32::EPSILON))
}

#[cfg(test)]
mod tests {
    use plmkit_contract::SequenceDigest;

    use super::*;
    use crate::check::Tallies;
    use crate::{Check, CheckOutcome};

    fn row(ordinal: u64, id: &str) -> RowKey<'_> {
        RowKey {
            ordinal,
            id,
            start: 0,
            length: 9,
            truncated: false,
            digest: SequenceDigest::new(b""),
            n_windows: 1,
        }
    }

    /// Compares vectors with a reference of these ids, each with the vector (1, 0).
    fn judge(ids: &[&str], found: &[(&str, [f32; 2])]) -> (Check, ColumnAgreement) {
        let mut reference = Reference::new(String::new(), vec!["mean_6".to_owned()]);
        for id in ids {
            assert!(reference.push(id, 0, vec![vec![1.0, 0.0]]));
        }
        let columns = ["mean_6".parse().expect("a column")];
        let (mut agreement, mut tallies) = (Agreement::default(), Tallies::default());
        let pairs = reference.pair(&columns);
        let reference = (reference, 0.999);
        for (ordinal, (id, vector)) in (0..).zip(found) {
            let tally = tallies.of("reference");
            agreement.add(&reference, &row(ordinal, id), &pairs, &[vector], tally);
        }
        let is_rejected = |id: &str| id == "rejected";
        agreement.check(&reference.0, is_rejected, tallies.of("reference"));
        let nothing = ColumnAgreement {
            column: columns[0],
            vectors: 0,
            min_cosine: None,
            median_difference: None,
            max_difference: None,
            tolerance: None,
        };
        let column = agreement.columns.pop().unwrap_or(nothing);
        (tallies.result("reference"), column)
    }

    #[test]
    fn agreement_does_not_depend_on_order_or_on_rows_outside_the_sample() {
        let found = [("c", [1.0, 0.0]), ("x", [0.0, 1.0]), ("a", [1.03, 0.0])];
        let (check, column) = judge(&["a", "c"], &found);
        assert_eq!(check.outcome, CheckOutcome::Pass);
        let counts = ["compared", "not_in_reference"].map(|name| check.counts[name]);
        assert_eq!(counts, [2, 1]);
        assert_eq!((column.vectors, column.min_cosine), (2, Some(1.0)));
        assert!(
            column
                .max_difference
                .is_some_and(|found| (found - 0.03).abs() < 1e-6)
        );
    }

    #[test]
    fn a_vector_of_another_length_is_named() {
        let (check, column) = judge(&["a", "b"], &[("a", [2.0, 0.0]), ("b", [0.96, 0.0])]);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        let expected = "ordinal 0 'a': mean_6: 2.000000 times as long as in the reference, expected 1 ± 4.47e-2";
        assert_eq!(lines, [expected]);
        assert_eq!(
            (column.min_cosine, column.max_difference),
            (Some(1.0), Some(1.0))
        );
    }

    #[test]
    fn a_vector_below_the_least_cosine_is_named() {
        let found = [("a", [1.0, 0.1]), ("b", [0.0, 1.0]), ("c", [0.0, 0.0])];
        let (check, column) = judge(&["a", "b", "c"], &found);
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "ordinal 0 'a': mean_6: cosine 0.9950372, expected at least 0.999",
                "ordinal 1 'b': mean_6: cosine 0.0000000, expected at least 0.999",
                "ordinal 2 'c': mean_6: no cosine"
            ]
        );
        assert_eq!((column.vectors, column.min_cosine), (2, Some(0.0)));
    }

    #[test]
    fn a_row_of_the_reference_is_found_or_rejected() {
        let found = [("a", [1.0, 0.0])];
        let (check, _) = judge(&["a", "gone", "rejected"], &found);
        let counts = ["not_found", "rejected"].map(|name| check.counts[name]);
        assert_eq!(counts, [1, 1]);
        assert_eq!(
            check.violations[0].to_string(),
            "'gone': not in the embeddings"
        );
        let (check, column) = judge(&["rejected"], &found);
        assert_eq!(check.counts["nothing_compared"], 1);
        assert_eq!((column.vectors, column.min_cosine), (0, None));
    }
}
