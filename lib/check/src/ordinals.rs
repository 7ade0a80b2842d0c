//! Whether every input record ended up in a shard or among the rejects, and in one of them only.

use roaring::RoaringTreemap;

use crate::check::{LISTED, Tallies};
use crate::checks::ordinals;
use crate::criteria::Criteria;

/// The check `ordinals` of the records in `shards`, those that were rejected, and those in the lists of aliases and known records.
///
/// Where the number of input records is not known it is taken to be one more than the largest ordinal: then records lost at the very
/// end of the input leave no trace.
pub(crate) fn check(shards: &RoaringTreemap, criteria: &Criteria, tallies: &mut Tallies) {
    let lists = &criteria.aliases;
    let records = criteria.counted().map(|(records, _)| records);
    let mut rejected = RoaringTreemap::new();
    let mut repeated = RoaringTreemap::new();
    for line in criteria.lists(false).flat_map(|(_, list)| &list.lines) {
        if !rejected.insert(line.ordinal) {
            repeated.insert(line.ordinal);
        }
    }
    for ordinal in &repeated {
        tallies.add(
            ordinals::rejected_twice,
            ordinal,
            "in the rejects more than once",
        );
    }
    let mut known = shards.clone();
    for (list, count, problem) in [
        (
            &rejected,
            ordinals::in_rejects,
            "both in the shards and in the rejects",
        ),
        (
            &lists.of_own,
            ordinals::in_aliases,
            "among the aliases, and also in a shard or another list",
        ),
        (
            &lists.of_known,
            ordinals::in_known,
            "among the known records, and also in a shard or another list",
        ),
    ] {
        for ordinal in &known & list {
            tallies.add(ordinals::in_both, ordinal, problem);
        }
        known |= list;
        tallies.count(count, list.len());
    }
    tallies.count(ordinals::in_shards, shards.len());
    lists.list_without_representative(shards, tallies);
    let end = records.unwrap_or_else(|| known.max().map_or(0, |last| last.saturating_add(1)));
    let mut next = 0; // the smallest ordinal not accounted for
    for (ordinal, is_record) in known
        .iter()
        .map(|known| (known, true))
        .chain([(end, false)])
    {
        if records.is_some() && is_record && ordinal >= end {
            tallies.add(ordinals::beyond, ordinal, "the input has fewer records");
        }
        // A wide gap is counted without walking it.
        for absent in (next..ordinal).take(LISTED) {
            let problem = "neither in the shards nor in the rejects";
            tallies.add(ordinals::absent, absent, problem);
        }
        let width = ordinal.saturating_sub(next);
        tallies.count(ordinals::absent, width.saturating_sub(LISTED as u64));
        next = ordinal.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plmkit_contract::{Reason, Reject, RejectsList};
    use proptest::prelude::*;

    use super::*;
    use crate::{AliasLists, Check, CheckOutcome};

    fn check_with(
        aliases: AliasLists,
        shards: &RoaringTreemap,
        rejects: &[u64],
        records: Option<u64>,
    ) -> Check {
        let lines = rejects.iter().map(|&ordinal| Reject {
            ordinal,
            id: String::new(),
            length: 0,
            reason: Reason::Empty,
            start: None,
        });
        let list = RejectsList {
            lines: lines.collect(),
            of_rows: false,
            digest: String::new(),
        };
        let criteria = Criteria {
            earlier: records.map(|records| (records, BTreeMap::new())),
            rejects: vec![(String::new(), list)],
            aliases,
            ..Criteria::default()
        };
        let mut tallies = Tallies::default();
        super::check(shards, &criteria, &mut tallies);
        tallies.result("ordinals")
    }

    fn check(shards: &RoaringTreemap, rejects: &[u64], records: Option<u64>) -> Check {
        check_with(AliasLists::default(), shards, rejects, records)
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
    fn records_lost_at_the_end_show_where_their_number_is_known() {
        let check = check(&[0, 1].into(), &[2], Some(5));
        assert_eq!((check.counts["absent"], check.counts["beyond"]), (2, 0));
        assert!(check.violations[0].to_string().starts_with("ordinal 3: "));
        let check = self::check(&[0, 1].into(), &[2], Some(2));
        assert_eq!((check.counts["absent"], check.counts["beyond"]), (0, 1));
    }

    #[test]
    fn aliases_and_known_records_are_accounted_for() {
        let of = |own: &[u64], known: &[u64]| {
            let mut lists = AliasLists::default();
            lists.of_own.extend(own);
            lists.of_known.extend(known);
            check_with(lists, &[0, 1].into(), &[5], Some(6))
        };
        assert_eq!(of(&[2], &[3, 4]).outcome, CheckOutcome::Pass);
        let check = of(&[0, 2], &[2, 3, 4]);
        assert_eq!((check.counts["in_both"], check.counts["in_known"]), (2, 3));
    }
}
