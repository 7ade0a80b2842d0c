//! A set of numbers or times.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// A set of numbers, stored as disjoint ranges: batches and readings come nearly in order, so memory grows only with the gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeSet<T> {
    /// The end of each range, by its start.
    ranges: BTreeMap<T, T>,
}

impl<T: Copy + Ord> RangeSet<T> {
    /// Adds a range, which must not be empty. Returns those parts of it that were not in the set.
    pub(super) fn insert(&mut self, range: Range<T>) -> Vec<Range<T>> {
        let fresh = self.gaps(&range);
        let (mut from, mut to) = (range.start, range.end);
        // Ranges that touch become one.
        while let Some((&start, &end)) = self.ranges.range(..=to).next_back()
            && end >= from
        {
            self.ranges.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.ranges.insert(from, to);
        fresh
    }

    /// Forgets the earliest gap of more than `most` ranges.
    pub(super) fn limit(&mut self, most: usize) {
        if self.ranges.len() > most
            && let Some((first, _)) = self.ranges.pop_first()
            && let Some((_, second_end)) = self.ranges.pop_first()
        {
            self.ranges.insert(first, second_end);
        }
    }

    /// Returns the parts of a range that are not in the set. The range must not be empty.
    pub(super) fn gaps(&self, within: &Range<T>) -> Vec<Range<T>> {
        let before = self.ranges.range(..=within.start).next_back();
        let mut at = before.map_or(within.start, |(_, &end)| end.max(within.start));
        let mut gaps = Vec::new();
        let inside = (Bound::Excluded(within.start), Bound::Excluded(within.end));
        for (&start, &end) in self.ranges.range(inside) {
            gaps.push(at..start);
            at = end;
        }
        gaps.push(at..within.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MAX_TIMES: usize = 4096;

    #[test]
    fn a_time_that_is_there_already_is_not_fresh() {
        let mut set = RangeSet::default();
        for (time, fresh) in [
            (10..20, Some(10..20)),
            (30..40, Some(30..40)),
            (15..35, Some(20..30)),
            (10..40, None),
        ] {
            assert_eq!(set.insert(time), fresh.as_slice());
        }
        assert_eq!(set.gaps(&(0..50)), [0..10, 40..50]);
    }

    #[test]
    fn memory_does_not_grow_without_end() {
        let mut set = RangeSet::default();
        for start in 0..10_000 {
            assert_eq!(set.insert(3 * start..3 * start + 1).len(), 1);
            set.limit(MAX_TIMES);
        }
        assert_eq!(set.ranges.len(), MAX_TIMES);
    }

    proptest! {
        #[test]
        fn it_is_a_set(times in prop::collection::vec((0_i64..60, 1_i64..9), 0..40)) {
            let (mut set, mut expected) = (RangeSet::default(), BTreeSet::new());
            for (start, length) in times {
                let fresh: Vec<i64> = set.insert(start..start + length).into_iter().flatten().collect();
                let all: Vec<i64> = (start..start + length).filter(|at| expected.insert(*at)).collect();
                prop_assert_eq!(fresh, all);
            }
            let gaps: Vec<i64> = set.gaps(&(0..70)).into_iter().flatten().collect();
            prop_assert_eq!(gaps, (0..70).filter(|at| !expected.contains(at)).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_single_numbers(numbers in prop::collection::vec(prop_oneof![0_u64..20, u64::MAX - 5..=u64::MAX], 0..60)) {
            let (mut found, mut expected) = (RangeSet::default(), BTreeSet::new());
            for number in numbers {
                let range = i128::from(number)..i128::from(number) + 1;
                prop_assert_eq!(!found.insert(range).is_empty(), expected.insert(number));
            }
            let mut gaps = expected.iter().zip(expected.iter().skip(1));
            let starts = usize::from(!expected.is_empty()) + gaps.by_ref().filter(|(one, next)| **one + 1 < **next).count();
            prop_assert_eq!(found.ranges.len(), starts);
        }
    }
}
