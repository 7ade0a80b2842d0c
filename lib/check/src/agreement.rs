//! How close embeddings are to a reference.

use std::collections::{BTreeSet, HashSet};

use plmkit_contract::{Column, RowKey};
use plmkit_kit::plural;
use serde::{Deserialize, Serialize};

use crate::check::Tallies;
use crate::checks::reference;
use crate::criteria::Criteria;
use crate::difference::{distance, norm};
use crate::vector::cosine;
use crate::violation::{FILE, Violation};

/// How close the vectors of a column are to others of the same rows, over the files so far. What was not measured is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnAgreement {
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
    found: &[f32],
    expected: &[f32],
    min_cosine: f64,
    all: &mut Vec<ColumnAgreement>,
    tallies: &mut Tallies,
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
