//! Sequences by length, without comparing any two.

/// The indices of `lengths` from the longest to the shortest, equal lengths in the order given.
///
/// A counting sort: linear, and the same whatever the machine. It needs four bytes for each index and eight
/// for each length up to `cap`; what is longer is sorted by comparison, since nothing bounds it.
pub(crate) fn longest_first(lengths: &[u32], cap: u32) -> Vec<u32> {
    let longest = lengths.iter().filter(|&&length| length <= cap).max();
    let mut places = vec![0_usize; longest.map_or(0, |&length| length as usize + 1)];
    for &length in lengths.iter().filter(|&&length| length <= cap) {
        places[length as usize] += 1;
    }

    let mut over: Vec<u32> = (0_u32..)
        .zip(lengths)
        .filter(|&(_, &length)| length > cap)
        .map(|(index, _)| index)
        .collect();
    over.sort_by_key(|&index| std::cmp::Reverse(lengths[index as usize]));

    let mut next = over.len();
    for place in places.iter_mut().rev() {
        next += std::mem::replace(place, next);
    }
    over.resize(lengths.len(), 0);
    for (index, &length) in (0_u32..).zip(lengths) {
        if length <= cap {
            let place = &mut places[length as usize];
            over[*place] = index;
            *place += 1;
        }
    }
    over
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_the_stable_sort_by_falling_length(
            lengths in prop::collection::vec(prop_oneof![0_u32..40, any::<u32>()], 0..200),
            cap in 0_u32..60,
        ) {
            let mut expected: Vec<u32> = (0..lengths.len() as u32).collect();
            expected.sort_by_key(|&index| std::cmp::Reverse(lengths[index as usize]));
            prop_assert_eq!(longest_first(&lengths, cap), expected);
        }
    }
}
