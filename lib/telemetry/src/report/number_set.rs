//! A set of numbers.

use std::collections::BTreeMap;

/// A set of numbers, stored as ranges: batches come nearly in order, so memory grows only with the gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberSet {
    /// The last number of each range, by the first.
    ranges: BTreeMap<u64, u64>,
}

impl NumberSet {
    /// Adds a number. Returns false if it was in the set before.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let below = self.ranges.range(..=number).next_back();
        let below = below.map(|(&first, &last)| (first, last));
        if below.is_some_and(|(_, last)| number <= last) {
            return false;
        }
        let is_adjacent = |&(_, last): &(u64, u64)| last.checked_add(1) == Some(number);
        let first = below.filter(is_adjacent).map_or(number, |(first, _)| first);
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
            let (mut found, mut expected) = (NumberSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(found.insert(number), expected.insert(number));
            }
            let mut gaps = expected.iter().zip(expected.iter().skip(1));
            let starts = usize::from(!expected.is_empty()) + gaps.by_ref().filter(|(one, next)| **one + 1 < **next).count();
            prop_assert_eq!(found.ranges.len(), starts);
        }
    }
}
