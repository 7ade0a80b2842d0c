//! How close embeddings are to a reference.

use plmkit_contract::{Column, RowKey, plural};
use roaring::RoaringBitmap;

use crate::check::Check;
use crate::cosines::{Cosines, Tiers};
use crate::reference::Reference;
use crate::violation::Violations;
use crate::{ColumnAgreement, ReferenceError};

/// How the rows so far compare with a reference.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// Rows of the reference.
    found: RoaringBitmap,
    columns: Vec<Cosines>,
    not_compared: Vec<String>,
    rows: u64,
    not_in_reference: u64,
    other_dimension: Violations,
}

/// What a column of an embeddings file is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// The column's place in the file.
    file: usize,
    reference: usize,
    agreement: usize,
}

impl Agreement {
    /// Which columns of a file are compared with which of the reference.
    pub(crate) fn pair(
        &mut self,
        reference: &Reference,
        columns: &[Column],
    ) -> Result<Vec<Pair>, ReferenceError> {
        let found = reference.pair(columns)?;
        let mut pairs = Vec::new();
        for (file, reference) in found.into_iter().enumerate() {
            let Some(reference) = reference else {
                self.add_not_compared(columns[file].to_string());
                continue;
            };
            let agreement = self.column(columns[file]);
            pairs.push(Pair {
                file,
                reference,
                agreement,
            });
        }
        Ok(pairs)
    }

    fn add_not_compared(&mut self, name: String) {
        if !self.not_compared.contains(&name) {
            self.not_compared.push(name);
        }
    }

    fn column(&mut self, name: Column) -> usize {
        if let Some(place) = self.columns.iter().position(|known| known.name() == name) {
            return place;
        }
        self.columns.push(Cosines::new(name));
        self.columns.len() - 1
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.found |= other.found;
        for column in other.columns {
            let place = self.column(column.name());
            self.columns[place].merge(column);
        }
        for name in other.not_compared {
            self.add_not_compared(name);
        }
        self.rows += other.rows;
        self.not_in_reference += other.not_in_reference;
        self.other_dimension.merge(other.other_dimension);
    }

    /// Compares the vectors of one row.
    pub(crate) fn add(
        &mut self,
        reference: &Reference,
        row: &RowKey,
        pairs: &[Pair],
        vectors: &[&[f32]],
    ) {
        let Some(place) = reference.find(row.id, row.start) else {
            self.not_in_reference += 1;
            return;
        };
        self.found.insert(place as u32);
        self.rows += 1;
        for pair in pairs {
            let found = vectors[pair.file];
            let expected = reference.vector(place, pair.reference);
            let column = &mut self.columns[pair.agreement];
            if found.len() == expected.len() {
                let other = (place + reference.rows() / 2) % reference.rows();
                column.add(
                    row,
                    found,
                    expected,
                    reference.vector(other, pair.reference),
                );
            } else {
                let values = plural(expected.len(), "value");
                let (name, found) = (column.name(), found.len());
                let problem =
                    format_args!("{name}: the reference has {values}, the embeddings have {found}");
                self.other_dimension.add_row(row, problem);
            }
        }
    }

    /// The check `reference`, the distribution of cosines, and the columns that were not compared.
    pub(crate) fn finish(
        self,
        reference: &Reference,
        tiers: Tiers,
        is_rejected: impl Fn(&str) -> bool,
    ) -> (Check, Vec<ColumnAgreement>, Vec<String>) {
        let mut not_found = Violations::default();
        let mut rejected = 0;
        for row in (0..reference.rows()).filter(|&row| !self.found.contains(row as u32)) {
            let (id, start) = reference.key(row);
            if is_rejected(id) {
                rejected += 1;
                continue;
            }
            not_found.add_reference_row(id, start, "not in the embeddings");
        }
        let (mut below, mut undefined) = (Violations::default(), Violations::default());
        let columns = self.columns.iter();
        let lenient: u64 = columns
            .map(|column| column.list_violations(tiers, &mut below, &mut undefined))
            .sum();
        let min = self
            .columns
            .iter()
            .filter_map(Cosines::min)
            .reduce(f64::min);
        let mut nothing_compared = Violations::default();
        if self.rows == 0 {
            nothing_compared.add_file("no row has an id of the reference");
        }
        let min = min.map_or_else(|| "none".to_owned(), |min| format!("{min:.7}"));
        let summary = format!(
            "{} compared, smallest cosine {min}: {} vectors below {}, {} without a cosine, \
             {} of another dimension, {} of {} reference rows not found",
            plural(self.rows, "row"),
            below.count,
            tiers.strict,
            undefined.count,
            self.other_dimension.count,
            not_found.count,
            reference.rows()
        );
        let check = Check::judged(
            "reference",
            summary,
            [
                ("compared", self.rows),
                ("not_in_reference", self.not_in_reference),
                ("rejected", rejected),
                ("lenient", lenient),
            ],
            [
                ("below", below),
                ("undefined", undefined),
                ("other_dimension", self.other_dimension),
                ("not_found", not_found),
                ("nothing_compared", nothing_compared),
            ],
        );
        (
            check,
            self.columns.into_iter().map(Cosines::finish).collect(),
            self.not_compared,
        )
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Pooling, SequenceDigest};

    use super::*;
    use crate::CheckOutcome;
    use crate::vector::cosine;
    use crate::violation::LISTED;

    const MEAN: Column = Column::Pooled {
        pool: Pooling::Mean,
        layer: 6,
    };

    fn row(ordinal: u64, id: &str) -> RowKey<'_> {
        RowKey {
            ordinal,
            id,
            start: 0,
            length: 9,
            truncated: false,
            digest: SequenceDigest::default(),
            n_windows: 1,
        }
    }

    /// A reference of unit vectors along the first axis, one for each id.
    fn judge(ids: &[&str], found: &[(&str, [f32; 2])]) -> (Check, Vec<ColumnAgreement>) {
        judge_by(Tiers::strict(0.999), ids, found)
    }

    fn judge_by(
        tiers: Tiers,
        ids: &[&str],
        found: &[(&str, [f32; 2])],
    ) -> (Check, Vec<ColumnAgreement>) {
        let mut reference = Reference::new(["mean_6".to_owned()]);
        for id in ids {
            reference
                .push(id, 0, [&[1.0, 0.0][..]])
                .expect("two values");
        }
        reference.sort().expect("each id once");
        let mut agreement = Agreement::default();
        for (ordinal, (id, vector)) in (0..).zip(found) {
            let mut part = Agreement::default();
            let pairs = part.pair(&reference, &[MEAN]).expect("the same name");
            part.add(&reference, &row(ordinal, id), &pairs, &[vector]);
            agreement.merge(part);
        }
        let (check, columns, _) = agreement.finish(&reference, tiers, |id| id == "rejected");
        (check, columns)
    }

    #[test]
    fn agreement_does_not_depend_on_order_or_on_rows_outside_the_sample() {
        let (check, columns) = judge(
            &["a", "b"],
            &[("c", [0.0, 1.0]), ("b", [2.0, 0.0]), ("a", [1.0, 0.0])],
        );
        assert_eq!(check.outcome, CheckOutcome::Pass);
        assert_eq!(
            (check.counts["compared"], check.counts["not_in_reference"]),
            (2, 1)
        );
        assert_eq!((columns[0].min, columns[0].mean), (Some(1.0), Some(1.0)));
        assert_eq!(columns[0].max_abs_difference, Some(1.0));
    }

    #[test]
    fn a_vector_below_the_floor_is_named_worst_first() {
        let (check, columns) = judge(
            &["a", "b", "c"],
            &[("a", [1.0, 0.1]), ("b", [0.0, 1.0]), ("c", [0.0, 0.0])],
        );
        assert_eq!(check.outcome, CheckOutcome::Fail);
        assert_eq!((check.counts["below"], check.counts["undefined"]), (2, 1));
        let lines: Vec<String> = check.violations.iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "ordinal 1 'b': mean_6: cosine 0.0000000");
        assert_eq!(lines[1], "ordinal 0 'a': mean_6: cosine 0.9950372");
        assert_eq!(lines[2], "ordinal 2 'c': mean_6: no cosine");
        let worst: Vec<&str> = columns[0].worst.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(worst, ["c", "b", "a"]);
    }

    #[test]
    fn a_reference_row_that_is_not_found_fails() {
        let (check, _) = judge(&["a", "b"], &[("a", [1.0, 0.0])]);
        assert_eq!(
            (check.outcome, check.counts["not_found"]),
            (CheckOutcome::Fail, 1)
        );
        assert_eq!(
            check.violations[0].to_string(),
            "'b': not in the embeddings"
        );
    }

    #[test]
    fn a_rejected_reference_row_may_be_missing() {
        let (check, _) = judge(&["a", "rejected"], &[("a", [1.0, 0.0])]);
        assert_eq!(check.outcome, CheckOutcome::Pass);
        assert_eq!(
            (check.counts["rejected"], check.counts["not_found"]),
            (1, 0)
        );
    }

    #[test]
    fn so_many_vectors_may_be_below_the_least_cosine_and_none_below_the_lenient_one() {
        let found = [("a", [1.0, 0.0]), ("b", [1.0, 0.1]), ("c", [2.0, 0.0])];
        for (lenient, share, outcome, below) in [
            (0.99, 0.4, CheckOutcome::Pass, 0),
            (0.99, 0.3, CheckOutcome::Fail, 1),
            (0.999, 0.4, CheckOutcome::Fail, 1),
        ] {
            let tiers = Tiers {
                strict: 0.9999,
                lenient,
                lenient_share: share,
            };
            let (check, columns) = judge_by(tiers, &["a", "b", "c"], &found);
            assert_eq!((check.outcome, check.counts["below"]), (outcome, below));
            assert_eq!(check.counts["lenient"], 1 - below);
            let ratio = columns[0].norm_ratio_max.expect("a ratio");
            assert!((ratio / 2.0 - 1.0).abs() < 0.01, "{ratio}");
        }
    }

    #[test]
    fn comparing_nothing_fails() {
        for ids in [&["a"][..], &[]] {
            let (check, columns) = judge(ids, &[("z", [1.0, 0.0])]);
            assert_eq!(
                (check.outcome, check.counts["nothing_compared"]),
                (CheckOutcome::Fail, 1)
            );
            assert_eq!((columns[0].compared, columns[0].min), (0, None));
        }
    }

    #[test]
    fn many_violations_are_counted_and_ten_listed() {
        let ids: Vec<String> = (0..50).map(|i| format!("p{i}")).collect();
        let names: Vec<&str> = ids.iter().map(String::as_str).collect();
        let found: Vec<(&str, [f32; 2])> =
            (0..50).map(|i| (names[i], [1.0, 0.1 + i as f32])).collect();
        let (check, columns) = judge(&names, &found);
        assert_eq!(
            (check.counts["below"], check.violations.len()),
            (50, LISTED)
        );
        assert_eq!(
            (columns[0].worst[0].id.as_str(), columns[0].worst.len()),
            ("p49", LISTED)
        );
        assert_eq!(
            columns[0].median,
            Some(cosine(&found[25].1, &[1.0, 0.0]).expect("finite"))
        );
        assert_eq!(columns[0].min, columns[0].q01);
        let classes: Vec<u64> = columns[0].by_cosine.iter().map(|class| class.1).collect();
        assert_eq!(classes, [48, 1, 0, 1, 0, 0, 0, 0]);
    }
}
