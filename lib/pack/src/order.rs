//! Items by length, without comparing any two.

use std::cmp::Reverse;

/// The indices of `items`, pairs of an index and a length, from the longest to the shortest. Indices rise, and
/// equal lengths stay in that order.
///
/// A counting sort: linear, and the same whatever the machine. It needs four bytes for each item and eight for
/// each length up to `cap`; what is longer is sorted by comparison, since nothing bounds it, in sixteen bytes
/// more for each.
pub(crate) fn longest_first(items: impl Iterator<Item = (u32, u64)> + Clone, cap: u32) -> Vec<u32> {
    let cap = u64::from(cap);
    let bounded = items.clone().filter(|&(_, length)| length <= cap);
    let longest = bounded.clone().map(|(_, length)| length).max();
    let mut places = vec![0_usize; longest.map_or(0, |length| length as usize + 1)];
    for (_, length) in bounded.clone() {
        places[length as usize] += 1;
    }

    let over = items.filter(|&(_, length)| length > cap);
    let mut over: Vec<(Reverse<u64>, u32)> = over
        .map(|(index, length)| (Reverse(length), index))
        .collect();
    over.sort_unstable();

    let mut next = over.len();
    for place in places.iter_mut().rev() {
        next += std::mem::replace(place, next);
    }
    let mut order = Vec::with_capacity(next);
    order.extend(over.into_iter().map(|(_, index)| index));
    order.resize(next, 0);
    for (index, length) in bounded {
        let place = &mut places[length as usize];
        order[*place] = index;
        *place += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_the_stable_sort_by_falling_length(
            lengths in prop::collection::vec(prop_oneof![0_u64..40, any::<u64>()], 0..200),
            cap in 0_u32..60,
        ) {
            let mut expected: Vec<u32> = (0..lengths.len() as u32).collect();
            expected.sort_by_key(|&index| Reverse(lengths[index as usize]));
            let items = (0..).zip(lengths.iter().copied());
            prop_assert_eq!(longest_first(items, cap), expected);
        }
    }
}
