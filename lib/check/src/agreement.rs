//! How close embeddings are to a reference.

use plmkit_contract::{Column, RowKey, plural};
use roaring::RoaringBitmap;
use serde::Serialize;

use crate::check::Tally;
use crate::difference::{distance, norm};
use crate::reference::Reference;
use crate::vector::{cosine, median};
use crate::violation::{FILE, Place};

/// How close one column is to the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnAgreement {
    /// The column's name in the embeddings.
    pub column: String,
    /// Vectors with a cosine.
    pub compared: u64,
    /// The smallest cosine; null, as all that follow, when nothing was compared.
    pub min: Option<f64>,
    /// The median cosine.
    pub median: Option<f64>,
    /// The median cosine of a vector with that of another protein of the reference: what a cosine of no agreement looks like.
    pub unrelated_median: Option<f64>,
    /// The largest norm of a difference, as a share of the norm of the reference's vector: cosines do not see a wrong scale.
    pub max_difference: Option<f64>,
}

/// How the rows so far compare with a reference.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// Rows of the reference.
    found: RoaringBitmap,
    columns: Vec<ComparedColumn>,
    pub(crate) not_compared: Vec<String>,
}

/// A column, over the files so far.
#[derive(Debug)]
struct ComparedColumn {
    column: Column,
    cosines: Vec<f64>,
    unrelated: Vec<f64>,
    max_difference: f64,
}

/// The places of a column of a file in the reference and in the agreement; none where it is not compared.
pub(crate) type Pair = Option<(usize, usize)>;

impl Agreement {
    /// What the columns of a file are compared with, which has these of the reference.
    pub(crate) fn pairs(&mut self, columns: &[Column], found: Vec<Option<usize>>) -> Vec<Pair> {
        let columns = columns.iter().zip(found);
        let pairs = columns.map(|(&column, reference)| {
            if reference.is_none() {
                self.add_not_compared(column.to_string());
            }
            reference.map(|reference| (reference, self.column(column)))
        });
        pairs.collect()
    }

    fn add_not_compared(&mut self, name: String) {
        if !self.not_compared.contains(&name) {
            self.not_compared.push(name);
        }
    }

    fn column(&mut self, column: Column) -> usize {
        let mut known = self.columns.iter();
        known
            .position(|known| known.column == column)
            .unwrap_or_else(|| {
                self.columns.push(ComparedColumn {
                    column,
                    cosines: Vec::new(),
                    unrelated: Vec::new(),
                    max_difference: 0.0,
                });
                self.columns.len() - 1
            })
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.found |= other.found;
        for more in other.columns {
            let place = self.column(more.column);
            let known = &mut self.columns[place];
            known.cosines.extend(more.cosines);
            known.unrelated.extend(more.unrelated);
            known.max_difference = known.max_difference.max(more.max_difference);
        }
        for name in other.not_compared {
            self.add_not_compared(name);
        }
    }

    /// Compares the vectors of one row, which must have this cosine at least.
    pub(crate) fn add(
        &mut self,
        (reference, min_cosine): &(Reference, f64),
        row: &RowKey,
        pairs: &[Pair],
        vectors: &[&[f32]],
        tally: &mut Tally,
    ) {
        let Some(place) = reference.find(row.id, row.start) else {
            tally.count("not_in_reference", 1);
            return;
        };
        self.found.insert(place as u32);
        tally.count("compared", 1);
        let other = (place + reference.rows() / 2) % reference.rows();
        for (pair, found) in pairs.iter().zip(vectors) {
            let Some((reference_column, column)) = *pair else {
                continue;
            };
            let expected = reference.vector(place, reference_column);
            let compared = &mut self.columns[column];
            let name = compared.column;
            if found.len() != expected.len() {
                let values = plural(expected.len(), "value");
                let found = found.len();
                let problem =
                    format_args!("{name}: the reference has {values}, the embeddings have {found}");
                tally.add("other_dimension", row, problem);
                continue;
            }
            let unrelated = cosine(found, reference.vector(other, reference_column));
            compared.unrelated.extend(unrelated);
            let difference = distance(found, expected, 0.0) / norm(expected);
            // A NaN is no maximum.
            compared.max_difference = compared.max_difference.max(difference);
            match cosine(found, expected) {
                None => tally.add("undefined", row, format_args!("{name}: no cosine")),
                Some(cosine) => {
                    compared.cosines.push(cosine);
                    if cosine < *min_cosine {
                        let problem = format_args!(
                            "{name}: cosine {cosine:.7}, expected at least {min_cosine}"
                        );
                        tally.add("below", row, problem);
                    }
                }
            }
        }
    }

    /// The check `reference`, where these ids may be missing.
    pub(crate) fn check(
        &self,
        reference: &Reference,
        is_rejected: impl Fn(&str) -> bool,
        tally: &mut Tally,
    ) {
        let keys = reference.keys();
        for (id, start, _) in keys.filter(|&(.., row)| !self.found.contains(row as u32)) {
            if is_rejected(id) {
                tally.count("rejected", 1);
                continue;
            }
            let place = Place {
                start: Some(start),
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

    /// How close each column is.
    pub(crate) fn columns(&self) -> Vec<ColumnAgreement> {
        let columns = self.columns.iter().map(|compared| ColumnAgreement {
            column: compared.column.to_string(),
            compared: compared.cosines.len() as u64,
            min: compared.cosines.iter().copied().reduce(f64::min),
            median: median(&mut compared.cosines.clone()),
            unrelated_median: median(&mut compared.unrelated.clone()),
            max_difference: (!compared.cosines.is_empty()).then_some(compared.max_difference),
        });
        columns.collect()
    }
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
        let mut reference = Reference::new(vec!["mean_6".to_owned()]);
        for id in ids {
            reference
                .push(id, 0, [&[1.0, 0.0][..]])
                .expect("two values");
        }
        let columns = ["mean_6".parse().expect("a column")];
        let (mut agreement, mut tallies) = (Agreement::default(), Tallies::default());
        let places = reference.pair(&columns).expect("one column");
        let pairs = agreement.pairs(&columns, places);
        let reference = (reference, 0.999);
        for (ordinal, (id, vector)) in (0..).zip(found) {
            let tally = tallies.of("reference");
            agreement.add(&reference, &row(ordinal, id), &pairs, &[vector], tally);
        }
        let is_rejected = |id: &str| id == "rejected";
        agreement.check(&reference.0, is_rejected, tallies.of("reference"));
        (tallies.result("reference"), agreement.columns().remove(0))
    }

    #[test]
    fn agreement_does_not_depend_on_order_or_on_rows_outside_the_sample() {
        let found = [("c", [1.0, 0.0]), ("x", [0.0, 1.0]), ("a", [2.0, 0.0])];
        let (check, column) = judge(&["a", "c"], &found);
        assert_eq!(check.outcome, CheckOutcome::Pass);
        let counts = ["compared", "not_in_reference"].map(|name| check.counts[name]);
        assert_eq!(counts, [2, 1]);
        assert_eq!((column.min, column.median), (Some(1.0), Some(1.0)));
        assert_eq!(column.max_difference, Some(1.0));
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
        assert_eq!((column.compared, column.min), (2, Some(0.0)));
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
        assert_eq!((column.compared, column.min), (0, None));
    }
}
