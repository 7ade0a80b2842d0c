use proptest::prelude::*;

use super::*;
use crate::{Check, CheckOutcome};
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

fn judge_without(mut not_embedded: Vec<Reject>, shards: &[RowKey], found: &[RowKey]) -> [Check; 2] {
    let (mut rows, mut tallies) = (Coverage::default(), Tallies::default());
    for row in shards {
        rows.push(row, &mut tallies);
    }
    for row in found {
        rows.compare(row, &mut tallies);
    }
    not_embedded.sort_by_key(reject_key);
    rows.finish(&not_embedded, &mut tallies);
    ["coverage", "records"].map(|check| tallies.clone().result(check))
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
