//! Whether every input record ended up in a shard or among the rejects, and in one of them only.

use std::ops::Range;

use plmkit_contract::plural;
use roaring::RoaringTreemap;

use crate::AliasLists;
use crate::check::Check;
use crate::violation::{LISTED, Violations};

/// The check `ordinals` of the records in `shards`, those in `rejects`, in any order, and those in the other `lists`.
///
/// `records` is the number of input records. Where it is not known it is taken to be one more than the largest
/// ordinal: then records lost at the very end of the input leave no trace.
pub(crate) fn check(
    shards: &RoaringTreemap,
    rejects: &[u64],
    lists: &AliasLists,
    records: Option<u64>,
) -> Check {
    let [mut absent, mut both, mut twice, mut beyond] = <[Violations; 4]>::default();
    let mut rejected = RoaringTreemap::new();
    let mut repeated = RoaringTreemap::new();
    for &ordinal in rejects {
        if !rejected.insert(ordinal) {
            repeated.insert(ordinal);
        }
    }
    let problem = "in the rejects more than once";
    repeated
        .iter()
        .for_each(|ordinal| twice.add_record(ordinal, problem));
    let problem = "both in the shards and in the rejects";
    (shards & &rejected)
        .iter()
        .for_each(|ordinal| both.add_record(ordinal, problem));

    let mut known = shards | &rejected;
    for (list, name) in [
        (&lists.of_own, "aliases"),
        (&lists.of_known, "known records"),
    ] {
        let problem = format!("among the {name}, and also in a shard or another list");
        for ordinal in &known & list {
            both.add_record(ordinal, &problem);
        }
        known |= list;
    }
    let without = lists.without_representative(shards);
    let end = records.unwrap_or_else(|| known.max().map_or(0, |last| last.saturating_add(1)));
    let mut next = 0; // the smallest ordinal not accounted for
    for ordinal in &known {
        if records.is_some() && ordinal >= end {
            beyond.add_record(ordinal, "the input has fewer records");
        }
        add_gap(&mut absent, next..ordinal);
        next = ordinal.saturating_add(1);
    }
    add_gap(&mut absent, next..end);

    let summary = format!(
        "{} in the shards, {} rejected: {} in neither, {} in both, {} rejected twice, \
         {} beyond the input; {}, {} without representative; {} known",
        plural(shards.len(), "record"),
        rejected.len(),
        absent.count,
        both.count,
        twice.count,
        beyond.count,
        plural(lists.of_own.len(), "alias"),
        without.count,
        lists.of_known.len()
    );
    Check::judged(
        "ordinals",
        summary,
        [
            ("in_shards", shards.len()),
            ("in_rejects", rejected.len()),
            ("in_aliases", lists.of_own.len()),
            ("in_known", lists.of_known.len()),
        ],
        [
            ("absent", absent),
            ("in_both", both),
            ("rejected_twice", twice),
            ("listed_twice", lists.doubled.clone()),
            ("no_representative", without),
            ("beyond", beyond),
        ],
    )
}

/// Adds ordinals that are nowhere; a wide range is counted without walking it.
fn add_gap(absent: &mut Violations, gap: Range<u64>) {
    let width = gap.end.saturating_sub(gap.start);
    for ordinal in gap.take(LISTED) {
        absent.add_record(ordinal, "neither in the shards nor in the rejects");
    }
    absent.count += width.saturating_sub(LISTED as u64);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CheckOutcome;

    fn check(shards: &RoaringTreemap, rejects: &[u64], records: Option<u64>) -> Check {
        super::check(shards, rejects, &AliasLists::default(), records)
    }

    proptest! {
        #[test]
        fn passes_exactly_when_the_two_share_out_all_ordinals(
            shards in prop::collection::btree_set(0_u64..8, 0..8),
            rejects in prop::collection::vec(0_u64..8, 0..6),
            records in prop::option::of(0_u64..9),
        ) {
            let check = check(&shards.iter().copied().collect(), &rejects, records);
            let mut once: Vec<u64> = shards.into_iter().collect();
            once.extend(&rejects);
            once.sort_unstable();
            let shared_out = once.iter().copied().eq(0..records.unwrap_or(once.len() as u64));
            prop_assert_eq!(check.outcome == CheckOutcome::Pass, shared_out, "{:?}", check);
        }
    }

    #[test]
    fn a_wide_gap_is_counted_without_walking_it() {
        let check = check(&[u64::MAX].into(), &[2], None);
        assert_eq!(check.counts["absent"], u64::MAX - 1);
        assert_eq!(check.violations.len(), LISTED);
        assert_eq!(
            check.violations[2].to_string(),
            "ordinal 3: neither in the shards nor in the rejects"
        );
    }

    #[test]
    fn a_record_in_both_is_named() {
        let check = check(&[0, 1].into(), &[1, 1], None);
        assert_eq!(
            (check.counts["in_both"], check.counts["rejected_twice"]),
            (1, 1)
        );
    }

    #[test]
    fn records_lost_at_the_end_show_where_their_number_is_known() {
        let check = check(&[0, 1].into(), &[2], Some(5));
        assert_eq!((check.counts["absent"], check.counts["beyond"]), (2, 0));
        assert!(check.violations[0].to_string().starts_with("ordinal 3: "));
        let check = self::check(&[0, 1].into(), &[2], Some(2));
        assert_eq!((check.counts["absent"], check.counts["beyond"]), (0, 1));
    }

    #[test]
    fn aliases_and_known_records_are_accounted_for() {
        let mut lists = AliasLists::default();
        lists.of_own.insert(2);
        lists.of_known.extend([3, 4]);
        let of = |lists: &AliasLists| super::check(&[0, 1].into(), &[5], lists, Some(6));
        assert_eq!(of(&lists).outcome, CheckOutcome::Pass);
        lists.of_known.insert(2);
        lists.of_own.insert(0);
        let check = of(&lists);
        assert_eq!((check.counts["in_both"], check.counts["in_known"]), (2, 3));
    }
}
