//! Whether every input record ended up in a shard or among the rejects, and in one of them only.

use crate::check::Check;
use crate::offender::{LISTED, Offender, Offenders};

/// The check `ordinals`. `shards` rises and may repeat (one for each window); `rejects` is in any order.
///
/// The number of input records is taken to be one more than the largest ordinal: records lost at the very end
/// of the input leave no trace here.
pub(crate) fn check(shards: impl Iterator<Item = u64>, mut rejects: Vec<u64>) -> Check {
    rejects.sort_unstable();
    let mut shards = shards.peekable();
    let mut rejected = rejects.iter().copied().peekable();
    let (mut absent, mut both, mut twice) = (
        Offenders::default(),
        Offenders::default(),
        Offenders::default(),
    );
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
            both.add(|| Offender::record(ordinal, "both in the shards and in the rejects"));
        }
        if lines > 1 {
            twice.add(|| Offender::record(ordinal, "in the rejects more than once"));
        }
        for gap in (next..ordinal).take(LISTED) {
            absent.add(|| Offender::record(gap, "neither in the shards nor in the rejects"));
        }
        absent.count += (ordinal - next).saturating_sub(LISTED as u64);
        next = ordinal.saturating_add(1);
    }

    let summary = format!(
        "{in_shards} records in the shards, {in_rejects} rejected: {} in neither, {} in both, {} rejected twice",
        absent.count, both.count, twice.count
    );
    Check::judged(
        "ordinals",
        summary,
        [("in_shards", in_shards), ("in_rejects", in_rejects)],
        [
            ("absent", absent),
            ("in_both", both),
            ("rejected_twice", twice),
        ],
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Outcome;

    proptest! {
        #[test]
        fn passes_exactly_when_the_two_share_out_all_ordinals(
            shards in prop::collection::vec(0_u64..8, 0..12),
            rejects in prop::collection::vec(0_u64..8, 0..6),
        ) {
            let mut sorted = shards.clone();
            sorted.sort_unstable();
            let check = check(sorted.iter().copied(), rejects.clone());
            let mut once = sorted;
            once.dedup();
            once.extend(&rejects);
            once.sort_unstable();
            let shared_out = once.iter().copied().eq(0..once.len() as u64);
            prop_assert_eq!(check.outcome == Outcome::Pass, shared_out, "{:?}", check);
        }
    }

    #[test]
    fn a_wide_gap_is_counted_without_walking_it() {
        let check = check([u64::MAX].into_iter(), vec![2]);
        assert_eq!(check.counts["absent"], u64::MAX - 1);
        assert_eq!(check.offenders.len(), LISTED);
        assert_eq!(
            check.offenders[2].to_string(),
            "record 3: neither in the shards nor in the rejects"
        );
    }

    #[test]
    fn windows_of_one_record_are_one_record() {
        let check = check([0, 0, 0, 2].into_iter(), vec![1]);
        assert_eq!(check.outcome, Outcome::Pass);
        assert_eq!(
            (check.counts["in_shards"], check.counts["in_rejects"]),
            (2, 1)
        );
    }

    #[test]
    fn a_record_in_both_is_named() {
        let check = check([0, 1].into_iter(), vec![1, 1]);
        assert_eq!(
            (check.counts["in_both"], check.counts["rejected_twice"]),
            (1, 1)
        );
    }
}
