//! Whether every input record ended up in a shard or among the rejects, and in one of them only.

use roaring::RoaringTreemap;

use crate::AliasLists;
use crate::check::{LISTED, Tally};

/// The check `ordinals` of the records in `shards`, those in `rejects`, in any order, and those in the other `lists`.
///
/// `records` is the number of input records. Where it is not known it is taken to be one more than the largest
/// ordinal: then records lost at the very end of the input leave no trace.
pub(crate) fn check(
    shards: &RoaringTreemap,
    rejects: impl Iterator<Item = u64>,
    lists: &AliasLists,
    records: Option<u64>,
    tally: &mut Tally,
) {
    let mut rejected = RoaringTreemap::new();
    let mut repeated = RoaringTreemap::new();
    for ordinal in rejects {
        if !rejected.insert(ordinal) {
            repeated.insert(ordinal);
        }
    }
    for ordinal in &repeated {
        tally.add("rejected_twice", ordinal, "in the rejects more than once");
    }
    let mut known = shards.clone();
    for (list, count, problem) in [
        (
            &rejected,
            "in_rejects",
            "both in the shards and in the rejects",
        ),
        (
            &lists.of_own,
            "in_aliases",
            "among the aliases, and also in a shard or another list",
        ),
        (
            &lists.of_known,
            "in_known",
            "among the known records, and also in a shard or another list",
        ),
    ] {
        for ordinal in &known & list {
            tally.add("in_both", ordinal, problem);
        }
        known |= list;
        tally.count(count, list.len());
    }
    tally.count("in_shards", shards.len());
    lists.list_without_representative(shards, tally);
    let end = records.unwrap_or_else(|| known.max().map_or(0, |last| last.saturating_add(1)));
    let mut next = 0; // the smallest ordinal not accounted for
    for (ordinal, is_record) in known
        .iter()
        .map(|known| (known, true))
        .chain([(end, false)])
    {
        if records.is_some() && is_record && ordinal >= end {
            tally.add("beyond", ordinal, "the input has fewer records");
        }
        // A wide gap is counted without walking it.
        for absent in (next..ordinal).take(LISTED) {
            let problem = "neither in the shards nor in the rejects";
            tally.add("absent", absent, problem);
        }
        let width = ordinal.saturating_sub(next);
        tally.add_unlisted("absent", width.saturating_sub(LISTED as u64));
        next = ordinal.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Check, CheckOutcome};

    fn check_with(
        lists: &AliasLists,
        shards: &RoaringTreemap,
        rejects: &[u64],
        records: Option<u64>,
    ) -> Check {
        let mut tallies = crate::check::Tallies::default();
        let rejects = rejects.iter().copied();
        super::check(shards, rejects, lists, records, tallies.of("ordinals"));
        tallies.result("ordinals")
    }

    fn check(shards: &RoaringTreemap, rejects: &[u64], records: Option<u64>) -> Check {
        check_with(&AliasLists::default(), shards, rejects, records)
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
        let of = |lists: &AliasLists| check_with(lists, &[0, 1].into(), &[5], Some(6));
        assert_eq!(of(&lists).outcome, CheckOutcome::Pass);
        lists.of_known.insert(2);
        lists.of_own.insert(0);
        let check = of(&lists);
        assert_eq!((check.counts["in_both"], check.counts["in_known"]), (2, 3));
    }
}
