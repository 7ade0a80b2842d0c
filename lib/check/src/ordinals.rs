//! Whether every input record ended up in a shard or among the rejects, and in one of them only.

use plmkit_contract::plural;
use std::ops::Range;

use crate::check::Check;
use crate::violation::{LISTED, Violations};

/// The check `ordinals`. `shards` rises and may repeat (one for each window); `rejects` is in any order.
///
/// `records` is the number of input records. Where it is not known it is taken to be one more than the largest
/// ordinal: then records lost at the very end of the input leave no trace.
pub(crate) fn check(
    shards: impl Iterator<Item = u64>,
    mut rejects: Vec<u64>,
    records: Option<u64>,
) -> Check {
    rejects.sort_unstable();
    let mut shards = shards.peekable();
    let mut rejected = rejects.iter().copied().peekable();
    let [mut absent, mut both, mut twice, mut beyond] = <[Violations; 4]>::default();
    let (mut in_shards, mut in_rejects) = (0, 0);
    let mut next = 0_u64; // the smallest ordinal not accounted for

    while let Some(ordinal) = [shards.peek(), rejected.peek()]
        .into_iter()
        .flatten()
        .min()
        .copied()
    {
        let mut rows = 0_u64;
        while shards.next_if_eq(&ordinal).is_some() {
            rows += 1;
        }
        let mut lines = 0_u64;
        while rejected.next_if_eq(&ordinal).is_some() {
            lines += 1;
        }
        in_shards += u64::from(rows > 0);
        in_rejects += u64::from(lines > 0);
        if rows > 0 && lines > 0 {
            both.add_record(ordinal, "both in the shards and in the rejects");
        }
        if lines > 1 {
            twice.add_record(ordinal, "in the rejects more than once");
        }
        if records.is_some_and(|records| ordinal >= records) {
            beyond.add_record(ordinal, "the input has fewer records");
        }
        add_gap(&mut absent, next..ordinal);
        next = ordinal.saturating_add(1);
    }

    add_gap(&mut absent, next..records.unwrap_or(next));

    let summary = format!(
        "{} in the shards, {in_rejects} rejected: {} in neither, {} in both, {} rejected twice, \
         {} beyond the input",
        plural(in_shards, "record"),
        absent.count,
        both.count,
        twice.count,
        beyond.count
    );
    Check::judged(
        "ordinals",
        summary,
        [("in_shards", in_shards), ("in_rejects", in_rejects)],
        [
            ("absent", absent),
            ("in_both", both),
            ("rejected_twice", twice),
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

    proptest! {
        #[test]
        fn passes_exactly_when_the_two_share_out_all_ordinals(
            shards in prop::collection::vec(0_u64..8, 0..12),
            rejects in prop::collection::vec(0_u64..8, 0..6),
            records in prop::option::of(0_u64..9),
        ) {
            let mut sorted = shards.clone();
            sorted.sort_unstable();
            let check = check(sorted.iter().copied(), rejects.clone(), records);
            let mut once = sorted;
            once.dedup();
            once.extend(&rejects);
            once.sort_unstable();
            let shared_out = once.iter().copied().eq(0..records.unwrap_or(once.len() as u64));
            prop_assert_eq!(check.outcome == CheckOutcome::Pass, shared_out, "{:?}", check);
        }
    }

    #[test]
    fn a_wide_gap_is_counted_without_walking_it() {
        let check = check([u64::MAX].into_iter(), vec![2], None);
        assert_eq!(check.counts["absent"], u64::MAX - 1);
        assert_eq!(check.violations.len(), LISTED);
        assert_eq!(
            check.violations[2].to_string(),
            "ordinal 3: neither in the shards nor in the rejects"
        );
    }

    #[test]
    fn windows_of_one_record_are_one_record() {
        let check = check([0, 0, 0, 2].into_iter(), vec![1], Some(3));
        assert_eq!(check.outcome, CheckOutcome::Pass);
        assert_eq!(
            (check.counts["in_shards"], check.counts["in_rejects"]),
            (2, 1)
        );
    }

    #[test]
    fn a_record_in_both_is_named() {
        let check = check([0, 1].into_iter(), vec![1, 1], None);
        assert_eq!(
            (check.counts["in_both"], check.counts["rejected_twice"]),
            (1, 1)
        );
    }

    #[test]
    fn records_lost_at_the_end_show_where_their_number_is_known() {
        let check = check([0, 1].into_iter(), vec![2], Some(5));
        assert_eq!((check.counts["absent"], check.counts["beyond"]), (2, 0));
        assert!(check.violations[0].to_string().starts_with("ordinal 3: "));
        let check = super::check([0, 1].into_iter(), vec![2], Some(2));
        assert_eq!((check.counts["absent"], check.counts["beyond"]), (0, 1));
    }
}
