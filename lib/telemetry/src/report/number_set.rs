//! A set of numbers.

use std::collections::BTreeMap;

/// A set of numbers that takes memory for its gaps only: batches come nearly in order.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberSet {
    /// The last number of each range, by the first.
    ranges: BTreeMap<u64, u64>,
}

impl NumberSet {
    /// Adds a number; false where it was in the set before.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let below = self.ranges.range(..=number).next_back();
        let below = below.map(|(&first, &last)| (first, last));
        if below.is_some_and(|(_, last)| number <= last) {
            return false;
        }
        let joins = |&(_, last): &(u64, u64)| last.checked_add(1) == Some(number);
        let first = below.filter(joins).map_or(number, |(first, _)| first);
        let above = number.checked_add(1);
        let last = above.and_then(|above| self.ranges.remove(&above));
        self.ranges.insert(first, last.unwrap_or(number));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(numbers in prop::collection::vec(prop_oneof![0_u64..20, u64::MAX - 5..=u64::MAX], 0..60)) {
            let (mut seen, mut set) = (NumberSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(seen.insert(number), set.insert(number));
            }
        }
    }

    #[test]
    fn numbers_in_order_take_no_memory() {
        let mut seen = NumberSet::default();
        for number in (0..1000).step_by(2).chain((0..1000).skip(1).step_by(2)) {
            assert!(seen.insert(number));
        }
        assert_eq!(seen.ranges.len(), 1);
    }
}
