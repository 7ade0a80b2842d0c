use proptest::prelude::*;

use super::*;
use crate::{Check, CheckOutcome};

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
    let (mut rows, mut tallies) = (Coverage::default(), Tallies::default());
    for row in shards {
        rows.push(row, &mut tallies);
    }
    for row in found {
        rows.compare(row, &mut tallies);
    }
    rows.finish(&[], &mut tallies);
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
