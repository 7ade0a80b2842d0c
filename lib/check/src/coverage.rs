//! Whether embeddings hold what the shards hold.

use plmkit_contract::{Quoted, Reject, RowKey, SequenceDigest, plural};

use crate::check::Check;
use crate::violation::Violations;

/// What the embeddings should hold: the key columns of every shard row, or of every protein, where they hold whole
/// ones.
///
/// 48 bytes for each row and the bytes of its id: about 6 GB for a hundred million rows.
#[derive(Debug, Default)]
pub struct ExpectedRows {
    rows: Vec<Expected>,
    /// All ids, one after another.
    ids: String,
}

#[derive(Debug)]
struct Expected {
    ordinal: u64,
    id_offset: u64,
    id_bytes: u32,
    /// The offset of the row in its protein. Of one put together from windows, their number: it begins at 0.
    start_or_windows: u32,
    length: u32,
    digest: SequenceDigest,
    stitched: bool,
    truncated: bool,
    is_found: bool,
}

const _: () = assert!(
    size_of::<Expected>() == 48,
    "what a hundred million rows need is documented"
);

impl Expected {
    fn sort_key(&self) -> (u64, u32) {
        (self.ordinal, self.start_and_windows().0)
    }

    fn start_and_windows(&self) -> (u32, u32) {
        if self.stitched {
            (0, self.start_or_windows)
        } else {
            (self.start_or_windows, 1)
        }
    }

    fn row<'a>(&self, ids: &'a str) -> RowKey<'a> {
        let offset = self.id_offset as usize;
        let (start, n_windows) = self.start_and_windows();
        RowKey {
            ordinal: self.ordinal,
            id: &ids[offset..offset + self.id_bytes as usize],
            start,
            length: self.length,
            truncated: self.truncated,
            digest: self.digest,
            n_windows,
        }
    }
}

impl ExpectedRows {
    /// Adds one row. Order does not matter. One of several windows begins its protein: it is taken to start at 0.
    pub fn push(&mut self, row: &RowKey) {
        let stitched = row.n_windows > 1;
        self.rows.push(Expected {
            ordinal: row.ordinal,
            id_offset: self.ids.len() as u64,
            id_bytes: row.id.len() as u32,
            start_or_windows: if stitched { row.n_windows } else { row.start },
            length: row.length,
            digest: row.digest,
            stitched,
            truncated: row.truncated,
            is_found: false,
        });
        self.ids.push_str(row.id);
    }
}

/// The rows of the shards, ticked off as they turn up.
#[derive(Debug)]
pub(crate) struct Coverage {
    /// By key, no key twice.
    rows: Vec<Expected>,
    ids: String,
    doubled_in_shards: Violations,
    extra: Violations,
    doubled: Violations,
    found: u64,
    compared: u64,
    /// By the field that differs: id, length, truncated, digest, `n_windows`.
    differing: [Violations; 5],
}

impl Coverage {
    pub(crate) fn new(shards: ExpectedRows) -> Self {
        let ExpectedRows { mut rows, ids } = shards;
        rows.sort_unstable_by_key(Expected::sort_key);
        let mut doubled_in_shards = Violations::default();
        rows.dedup_by(|later, earlier| {
            let same = later.sort_key() == earlier.sort_key();
            if same {
                doubled_in_shards.add_row(&earlier.row(&ids), "in the shards more than once");
            }
            same
        });
        Self {
            rows,
            ids,
            doubled_in_shards,
            extra: Violations::default(),
            doubled: Violations::default(),
            found: 0,
            compared: 0,
            differing: <[Violations; 5]>::default(),
        }
    }

    pub(crate) fn add(&mut self, row: &RowKey) {
        self.found += 1;
        let Ok(place) = self
            .rows
            .binary_search_by_key(&row.sort_key(), Expected::sort_key)
        else {
            self.extra.add_row(row, "not in the shards");
            return;
        };
        let expected = &mut self.rows[place];
        if std::mem::replace(&mut expected.is_found, true) {
            self.doubled.add_row(row, "more than once");
            return;
        }
        self.compared += 1;
        let expected = expected.row(&self.ids);
        let [id, length, truncated, digest, n_windows] = &mut self.differing;
        if row.id != expected.id {
            let problem = format_args!("expected id {}", Quoted(expected.id));
            id.add_row(row, problem);
        }
        if row.length != expected.length {
            let (expected, found) = (expected.length, row.length);
            let problem = format_args!("expected length {expected}, found {found}");
            length.add_row(row, problem);
        }
        if row.truncated != expected.truncated {
            let (expected, found) = (expected.truncated, row.truncated);
            let problem = format_args!("expected truncated = {expected}, found {found}");
            truncated.add_row(row, problem);
        }
        if row.digest != expected.digest {
            digest.add_row(row, "made from other residues: the digest differs");
        }
        if row.n_windows != expected.n_windows {
            let (expected, found) = (expected.n_windows, row.n_windows);
            let problem =
                format_args!("expected to be made from {expected} windows, found {found}");
            n_windows.add_row(row, problem);
        }
    }

    /// The ordinals of the shards, rising, one for each row.
    pub(crate) fn ordinals(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| row.ordinal)
    }

    /// The checks `coverage` and `records`. The rows `not_embedded` may be missing.
    pub(crate) fn finish(self, mut not_embedded: Vec<Reject>) -> [Check; 2] {
        let key = |line: &Reject| (line.ordinal, line.start.unwrap_or(0));
        not_embedded.sort_unstable_by_key(key);
        let expected = self.rows.len() as u64;
        let mut missing = Violations::default();
        let mut rejected = 0;
        for expected in self.rows.iter().filter(|row| !row.is_found) {
            let row = expected.row(&self.ids);
            match not_embedded.binary_search_by_key(&row.sort_key(), key) {
                Ok(place) if is_of(&not_embedded[place], &row) => rejected += 1,
                Ok(place) => {
                    let line = &not_embedded[place];
                    let (id, length) = (Quoted(&line.id), line.length);
                    let problem = format_args!("missing: it is listed as {id} of length {length}");
                    missing.add_row(&row, problem);
                }
                Err(_) => missing.add_row(&row, "missing"),
            }
        }
        let summary = format!(
            "{}, {expected} expected: {rejected} rejected, {} missing, {} extra, {} doubled",
            plural(self.found, "row"),
            missing.count,
            self.extra.count,
            self.doubled.count
        );
        let coverage = Check::judged(
            "coverage",
            summary,
            [
                ("expected", expected),
                ("found", self.found),
                ("rejected", rejected),
            ],
            [
                ("missing", missing),
                ("extra", self.extra),
                ("doubled", self.doubled),
                ("doubled_in_shards", self.doubled_in_shards),
            ],
        );
        let [id, length, truncated, digest, n_windows] = self.differing;
        let summary = format!(
            "{} compared: {} other ids, {} other lengths, {} other truncations, {} other residues, \
             {} other numbers of windows",
            plural(self.compared, "row"),
            id.count,
            length.count,
            truncated.count,
            digest.count,
            n_windows.count
        );
        let records = Check::judged(
            "records",
            summary,
            [("compared", self.compared)],
            [
                ("id", id),
                ("length", length),
                ("truncated", truncated),
                ("digest", digest),
                ("n_windows", n_windows),
            ],
        );
        [coverage, records]
    }
}

/// Whether a line is about this row.
fn is_of(line: &Reject, row: &RowKey) -> bool {
    line.id == row.id && line.length == u64::from(row.length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CheckOutcome;
    use plmkit_contract::Reason;

    fn row(ordinal: u64, start: u32) -> RowKey<'static> {
        RowKey {
            ordinal,
            id: "P",
            start,
            length: 900,
            truncated: false,
            digest: SequenceDigest::new(b"MKV"),
            n_windows: 1,
        }
    }

    fn judge(shards: &[RowKey], found: &[RowKey]) -> [Check; 2] {
        judge_without(Vec::new(), shards, found)
    }

    fn judge_without(not_embedded: Vec<Reject>, shards: &[RowKey], found: &[RowKey]) -> [Check; 2] {
        let mut rows = ExpectedRows::default();
        for row in shards {
            rows.push(row);
        }
        let mut coverage = Coverage::new(rows);
        for row in found {
            coverage.add(row);
        }
        coverage.finish(not_embedded)
    }

    proptest! {
        #[test]
        fn counts_what_two_multisets_differ_by(
            shards in prop::collection::btree_set((0_u64..20, 0_u32..3), 0..30),
            found in prop::collection::vec((0_u64..20, 0_u32..3), 0..40),
        ) {
            let expected: Vec<RowKey> = shards.iter().map(|&(ordinal, start)| row(ordinal, start)).collect();
            let rows: Vec<RowKey> = found.iter().map(|&(ordinal, start)| row(ordinal, start)).collect();
            let [coverage, records] = judge(&expected, &rows);

            let count = |key| found.iter().filter(|&&other| other == key).count() as u64;
            let missing = shards.iter().filter(|&&key| count(key) == 0).count() as u64;
            let doubled: u64 = shards.iter().map(|&key| count(key).saturating_sub(1)).sum();
            let extra = found.iter().filter(|key| !shards.contains(key)).count() as u64;
            prop_assert_eq!(coverage.counts["missing"], missing);
            prop_assert_eq!(coverage.counts["doubled"], doubled);
            prop_assert_eq!(coverage.counts["extra"], extra);
            prop_assert_eq!(coverage.outcome == CheckOutcome::Pass, missing + doubled + extra == 0);
            prop_assert_eq!(records.outcome, CheckOutcome::Pass);
        }
    }

    #[test]
    fn each_field_that_differs_is_counted_by_name() {
        let expected = [row(0, 0), row(0, 511), row(1, 0), row(2, 0), row(3, 0)];
        let mut found = expected;
        found[0].id = "Q";
        found[1].length = 901;
        found[2].truncated = true;
        found[3].digest = SequenceDigest::new(b"MKL");
        let [coverage, records] = judge(&expected, &found);
        assert_eq!(coverage.outcome, CheckOutcome::Pass);
        assert_eq!(records.outcome, CheckOutcome::Fail);
        for field in ["id", "length", "truncated", "digest"] {
            assert_eq!(records.counts[field], 1, "{field}");
        }
        let lines: Vec<String> = records.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "ordinal 0 'Q': expected id 'P'",
                "ordinal 0 'P' from residue 511: expected length 900, found 901",
                "ordinal 1 'P': expected truncated = false, found true",
                "ordinal 2 'P': made from other residues: the digest differs",
            ]
        );
    }

    #[test]
    fn a_protein_of_windows_is_one_row_with_their_number() {
        let of = |n_windows| RowKey {
            n_windows,
            ..row(0, 0)
        };
        let shards = [of(3), row(1, 0)];
        let [coverage, records] = judge(&shards, &shards);
        assert_eq!(
            (coverage.outcome, records.outcome),
            (CheckOutcome::Pass, CheckOutcome::Pass)
        );
        let [coverage, records] = judge(&shards, &[of(2), row(1, 0), row(0, 400)]);
        assert_eq!(
            (coverage.counts["extra"], records.counts["n_windows"]),
            (1, 1)
        );
        assert_eq!(
            records.violations[0].to_string(),
            "ordinal 0 'P': expected to be made from 3 windows, found 2"
        );
        let [coverage, _] = judge_without(vec![listed(0, 0)], &shards, &[row(1, 0)]);
        assert_eq!(
            (coverage.outcome, coverage.counts["rejected"]),
            (CheckOutcome::Pass, 1)
        );
    }

    #[test]
    fn a_shard_given_twice_is_no_coverage() {
        let [coverage, _] = judge(&[row(0, 0), row(0, 0)], &[row(0, 0)]);
        assert_eq!(coverage.outcome, CheckOutcome::Fail);
        assert_eq!(coverage.counts["doubled_in_shards"], 1);
        assert_eq!(coverage.counts["missing"], 0);
    }

    fn listed(ordinal: u64, start: u32) -> Reject {
        let row = row(ordinal, start);
        Reject {
            ordinal,
            id: row.id.to_owned(),
            length: row.length.into(),
            reason: Reason::NotFinite,
            start: Some(start),
        }
    }

    #[test]
    fn a_row_that_is_listed_may_be_missing_and_no_other() {
        let shards = [row(0, 0), row(1, 0), row(1, 766), row(2, 0)];
        let missing = |not_embedded: &[Reject]| {
            let [coverage, _] = judge_without(not_embedded.to_vec(), &shards, &[]);
            let missing = coverage.violations.iter().map(ToString::to_string);
            let missing: Vec<String> = missing.collect();
            assert_eq!(
                coverage.counts["rejected"] + missing.len() as u64,
                shards.len() as u64
            );
            missing
        };
        assert_eq!(
            missing(&[listed(2, 0), listed(1, 766)]),
            ["ordinal 0 'P': missing", "ordinal 1 'P': missing"]
        );
        assert_eq!(missing(&[listed(1, 765)]).len(), 4);
        let others = [listed(0, 0), listed(1, 0), listed(1, 766), listed(2, 0)].map(|mut line| {
            match line.ordinal {
                0 => line.id.push('Q'),
                2 => line.length += 1,
                _ => {}
            }
            line
        });
        let length = shards[0].length;
        assert_eq!(
            missing(&others),
            [
                format!("ordinal 0 'P': missing: it is listed as 'PQ' of length {length}"),
                format!(
                    "ordinal 2 'P': missing: it is listed as 'P' of length {}",
                    length + 1
                ),
            ]
        );
    }

    #[test]
    fn nothing_covers_nothing() {
        let [coverage, records] = judge(&[], &[]);
        assert_eq!(
            (coverage.outcome, records.outcome),
            (CheckOutcome::Pass, CheckOutcome::Pass)
        );
    }
}
