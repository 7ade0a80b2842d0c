//! How close embeddings are to a reference.

use std::collections::{BTreeSet, HashSet};

use plmkit_contract::{Column, RowKey, plural};
use serde::Serialize;

use crate::Criteria;
use crate::check::Tallies;
use crate::checks::reference;
use crate::difference::{distance, norm};
use crate::vector::cosine;
use crate::violation::{FILE, Violation};

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

/// Compares a vector of a column with that of the reference, which must have this cosine at least.
pub(crate) fn compare(
    column: Column,
    row: &RowKey,
    (found, expected): (&[f32], &[f32]),
    min_cosine: f64,
    (all, tallies): (&mut Vec<ColumnAgreement>, &mut Tallies),
) {
    if found.len() != expected.len() {
        let values = plural(expected.len(), "value");
        let found = found.len();
        let problem =
            format_args!("{column}: the reference has {values}, the embeddings have {found}");
        return tallies.add(reference::other_dimension, row, problem);
    }
    let Some(cosine) = cosine(found, expected) else {
        return tallies.add(
            reference::undefined,
            row,
            format_args!("{column}: no cosine"),
        );
    };
    if cosine < min_cosine {
        let problem = format_args!("{column}: cosine {cosine:.7}, expected at least {min_cosine}");
        tallies.add(reference::below, row, problem);
    }
    // A cosine does not see a wrong scale: lengths may differ by as much as a cosine lets vectors of one length be apart.
    let (scale, most) = (norm(found) / norm(expected), apart(min_cosine));
    if min_cosine > 0.0 && (scale - 1.0).abs() > most {
        let problem = format_args!(
            "{column}: {scale:.6} times as long as in the reference, expected 1 ± {most:.2e}"
        );
        tallies.add(reference::other_norm, row, problem);
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
    agreement.add_to(all);
}

/// The check `reference`, where these rows of the reference were found, by id and start.
pub(crate) fn check(found: &BTreeSet<(String, u32)>, criteria: &Criteria, tallies: &mut Tallies) {
    let Some((known, _)) = &criteria.reference else {
        return;
    };
    let lines = criteria.rejects.iter().flat_map(|(_, list)| &list.lines);
    let rejected: HashSet<&str> = lines.map(|line| line.id.as_str()).collect();
    for (id, start) in known.rows.keys().filter(|key| !found.contains(*key)) {
        if rejected.contains(id.as_str()) {
            tallies.count(reference::rejected, 1);
            continue;
        }
        let place = Violation {
            start: Some(*start),
            id: Some(id.clone()),
            ..FILE
        };
        tallies.add(reference::not_found, place, "not in the embeddings");
    }
    if tallies.counted(reference::compared) == 0 {
        let problem = "no row has an id of the reference";
        tallies.add(reference::nothing_compared, FILE, problem);
    }
}

/// The distance of two vectors of length 1 with this cosine; that of f32's rounding at least.
fn apart(cosine: f64) -> f64 {
    (2.0 * (1.0 - cosine)).sqrt().max(f64::from(f32::EPSILON))
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Provenance, Reason, Reject, RejectsList, SequenceDigest};

    use super::*;
    use crate::{Check, CheckOutcome, EmbeddedFile, Reference, Validator};

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
        let mut criteria = Criteria {
            reference: Some((reference, 0.999)),
            ..Criteria::default()
        };
        let rejected = Reject {
            ordinal: 99,
            id: "rejected".to_owned(),
            length: 0,
            reason: Reason::Empty,
            start: None,
        };
        let list = RejectsList {
            lines: vec![rejected],
            of_rows: false,
            digest: String::new(),
        };
        criteria.add_rejects(String::new(), list);
        let mut validator = Validator::new(&criteria, false);
        let made = Provenance::new("gpu-embed", Vec::new());
        validator.begin_file(EmbeddedFile::of("e", made, &["mean_6"]));
        for (ordinal, (id, vector)) in (0..).zip(found) {
            validator.add_row(&row(ordinal, id), &[vector]);
        }
        let mut verdict = validator.finish().verdict(&criteria);
        let nothing = ColumnAgreement {
            column: "mean_6".parse().expect("a column"),
            vectors: 0,
            min_cosine: None,
            median_difference: None,
            max_difference: None,
            tolerance: None,
        };
        let column = verdict.agreement.pop().unwrap_or(nothing);
        (verdict.check("reference").clone(), column)
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
