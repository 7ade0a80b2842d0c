//! How close embeddings are to a reference.

use plmkit_contract::{Column, RowKey, plural};
use roaring::RoaringBitmap;

use crate::ReferenceError;
use crate::check::Tally;
use crate::cosines::{Cosines, Tiers};
use crate::reference::Reference;
use crate::violation::{FILE, Place};

/// How the rows so far compare with a reference.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// Rows of the reference.
    found: RoaringBitmap,
    pub(crate) columns: Vec<Cosines>,
    pub(crate) not_compared: Vec<String>,
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
        if let Some(place) = self.columns.iter().position(|known| known.name == name) {
            return place;
        }
        self.columns.push(Cosines::new(name));
        self.columns.len() - 1
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.found |= other.found;
        for column in other.columns {
            let place = self.column(column.name);
            self.columns[place].merge(column);
        }
        for name in other.not_compared {
            self.add_not_compared(name);
        }
    }

    /// Compares the vectors of one row.
    pub(crate) fn add(
        &mut self,
        reference: &Reference,
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
        for pair in pairs {
            let found = vectors[pair.file];
            let expected = reference.vector(place, pair.reference);
            let column = &mut self.columns[pair.agreement];
            if found.len() == expected.len() {
                let other = (place + reference.rows() / 2) % reference.rows();
                let unrelated = reference.vector(other, pair.reference);
                column.add(row, found, expected, unrelated);
            } else {
                let values = plural(expected.len(), "value");
                let (name, found) = (column.name, found.len());
                let problem =
                    format_args!("{name}: the reference has {values}, the embeddings have {found}");
                tally.add("other_dimension", row, problem);
            }
        }
    }

    /// The check `reference`.
    pub(crate) fn check(
        &self,
        reference: &Reference,
        tiers: Tiers,
        is_rejected: impl Fn(&str) -> bool,
        tally: &mut Tally,
    ) {
        for row in (0..reference.rows()).filter(|&row| !self.found.contains(row as u32)) {
            let (id, start) = reference.key(row);
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
        for column in &self.columns {
            column.list_violations(tiers, tally);
        }
        if tally.counted("compared") == 0 {
            let problem = "no row has an id of the reference";
            tally.add("nothing_compared", FILE, problem);
        }
        let min = self.columns.iter().filter_map(Cosines::min);
        let min = min.reduce(f64::min);
        let min = min.map_or_else(|| "none".to_owned(), |min| format!("{min:.7}"));
        tally.summary = Some(format!(
            "{{compared:row}} compared, smallest cosine {min}: {{below}} vectors below {}, {{undefined}} without a cosine, \
             {{other_dimension}} of another dimension, {{not_found}} of {} reference rows not found",
            tiers.strict,
            reference.rows()
        ));
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Pooling, SequenceDigest};

    use super::*;
    use crate::check::LISTED;
    use crate::vector::cosine;
    use crate::{Check, CheckOutcome, ColumnAgreement};

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
        let mut tallies = crate::check::Tallies::default();
        let tally = tallies.of("reference");
        for (ordinal, (id, vector)) in (0..).zip(found) {
            let mut part = Agreement::default();
            let pairs = part.pair(&reference, &[MEAN]).expect("the same name");
            part.add(&reference, &row(ordinal, id), &pairs, &[vector], tally);
            agreement.merge(part);
        }
        agreement.check(&reference, tiers, |id| id == "rejected", tally);
        let columns = agreement.columns.into_iter().map(Cosines::finish);
        (tallies.result("reference"), columns.collect())
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
