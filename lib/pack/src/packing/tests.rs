use std::iter;

use proptest::prelude::*;

use super::*;

/// Best-fit decreasing in its quadratic textbook form; a batch moves to the back when it changes. The sequences of a group above
/// the capacity go into new batches, in order.
fn naive(groups: &[Vec<u32>], capacity: u32) -> Vec<Vec<u32>> {
    let total = |group: &[u32]| group.iter().map(|&length| u64::from(length)).sum::<u64>();
    let firsts = groups.iter().scan(0, |next, group| {
        *next += group.len() as u32;
        Some(*next - group.len() as u32)
    });
    let mut order: Vec<(u32, &Vec<u32>)> = firsts.zip(groups).collect();
    order.sort_by_key(|(_, group)| std::cmp::Reverse(total(group)));
    let mut open: Vec<(usize, u64)> = Vec::new(); // (batch, room)
    let mut batches: Vec<Vec<u32>> = Vec::new();
    for (first, group) in order {
        let mut rows = (first..).zip(group.iter().map(|&length| u64::from(length)));
        if total(group) <= u64::from(capacity) {
            let best = (0..open.len())
                .filter(|&place| open[place].1 >= total(group))
                .min_by_key(|&place| open[place].1);
            let (batch, room) = if let Some(place) = best {
                open.remove(place)
            } else {
                batches.push(Vec::new());
                (batches.len() - 1, u64::from(capacity))
            };
            batches[batch].extend(rows.map(|(row, _)| row));
            open.push((batch, room - total(group)));
            continue;
        }
        let mut rest = rows.next();
        while let Some((row, mut tokens)) = rest {
            let mut batch = vec![row];
            rest = rows.next();
            while let Some((row, length)) =
                rest.filter(|(_, length)| tokens + length <= u64::from(capacity))
            {
                batch.push(row);
                tokens += length;
                rest = rows.next();
            }
            batches.push(batch);
            if tokens <= u64::from(capacity) {
                open.push((batches.len() - 1, u64::from(capacity) - tokens));
            }
        }
    }
    batches
}

/// Packs sequences without groups, in one section.
fn singles(lengths: &[u32], capacity: u32) -> Vec<Vec<u32>> {
    let keys: Vec<usize> = (0..lengths.len()).collect();
    in_sections(lengths, &keys, capacity, u64::MAX)
}

/// Returns a key for each sequence of these groups.
fn keys(groups: &[Vec<u32>]) -> Vec<usize> {
    let keys = (0_usize..).zip(groups);
    let keys = keys.flat_map(|(key, group)| iter::repeat_n(key, group.len()));
    keys.collect()
}

fn grouped(groups: &[Vec<u32>], capacity: u32) -> Vec<Vec<u32>> {
    in_sections(&groups.concat(), &keys(groups), capacity, u64::MAX)
}

/// Makes proteins: three quarters of one sequence, the others of windows.
fn proteins() -> impl Strategy<Value = (Vec<Vec<u32>>, u32)> {
    let lengths = prop_oneof![
        3 => prop::collection::vec(2_u32..120, 1),
        1 => prop::collection::vec(2_u32..120, 2..12),
    ];
    (prop::collection::vec(lengths, 0..150), 1_u32..500)
}

proptest! {
    #[test]
    fn equals_the_quadratic_algorithm((groups, capacity) in proteins()) {
        prop_assert_eq!(grouped(&groups, capacity), naive(&groups, capacity));
    }

    #[test]
    fn keeps_a_group_together_and_in_order((groups, capacity) in proteins()) {
        let packing = grouped(&groups, capacity);
        let lengths = groups.concat();
        let mut place_of = vec![None; lengths.len()]; // (batch, position in the batch) of each sequence
        for (batch, sequences) in packing.iter().enumerate() {
            let tokens: u32 = sequences.iter().map(|&index| lengths[index as usize]).sum();
            prop_assert!(tokens <= capacity || sequences.len() == 1);
            for (place, &index) in sequences.iter().enumerate() {
                let before = place_of[index as usize].replace((batch, place));
                prop_assert_eq!(before, None);
            }
        }
        let mut places = place_of.into_iter().map(|place| place.expect("is in a batch"));
        for group in &groups {
            let fits = group.iter().sum::<u32>() <= capacity;
            let places: Vec<(usize, usize)> = places.by_ref().take(group.len()).collect();
            prop_assert!(fits || places[0].1 == 0);
            for pair in places.windows(2) {
                let [(batch, place), next] = [pair[0], pair[1]];
                prop_assert!(next == (batch, place + 1) || (!fits && next == (batch + 1, 0)));
            }
        }
    }

    #[test]
    fn sections_follow_one_another(
        (groups, capacity) in proteins(),
        section in 1_u64..2000,
    ) {
        let lengths = groups.concat();
        let packing = in_sections(&lengths, &keys(&groups), capacity, section);
        let tokens = |rows: &[u32]| rows.iter().map(|&row| u64::from(lengths[row as usize])).sum::<u64>();
        let mut rows: Vec<u32> = Vec::new(); // in batches since the end of the last section
        let mut next = 0;
        for batch in &packing {
            prop_assert!(tokens(batch) <= u64::from(capacity) || batch.len() == 1);
            rows.extend(batch);
            let after = next + rows.len() as u32;
            if rows.iter().all(|row| (next..after).contains(row)) {
                let longest = groups.iter().map(|group| group.iter().sum::<u32>()).max();
                let most = section.max(capacity.into()) + u64::from(capacity) + u64::from(longest.unwrap_or(0));
                prop_assert!(tokens(&rows) <= most);
                rows.clear();
                next = after;
            }
        }
        prop_assert_eq!((rows.len(), next as usize), (0, lengths.len()));
    }

    #[test]
    fn needs_hardly_more_batches_than_scattered_windows_if_short_sequences_fill_them(
        (groups, capacity) in (prop::collection::vec((1_usize..20, 2_u32..200), 1..40), 200_u32..2000),
    ) {
        // Windows of 200 tokens, the last shorter; and more short sequences than the batches have room for.
        let windows = |(count, last)| [vec![200; count], vec![last]].concat();
        let mut groups: Vec<Vec<u32>> = groups.into_iter().map(windows).collect();
        let tokens: u32 = groups.iter().flatten().sum();
        groups.extend((0..tokens + capacity).map(|place| vec![2 + place % 9]));
        let lengths = groups.concat();
        let scattered = singles(&lengths, capacity);
        let together = grouped(&groups, capacity);
        // One of at most 10 tokens began the last batch, since no other had room for it.
        let least = capacity as usize - 9;
        prop_assert!((together.len() - 1) * least <= scattered.len() * capacity as usize);
    }

    #[test]
    fn stays_within_the_bound_of_best_fit_decreasing(
        lengths in prop::collection::vec(1_u32..=1000, 1..500),
        spare in 0_u32..2000,
    ) {
        // Cutting full batches into random pieces gives an instance whose optimum is known.
        let capacity = 1000 + spare;
        let mut pieces = Vec::new();
        for &cut in &lengths {
            pieces.extend([cut, capacity - cut]);
        }
        let optimum = lengths.len();
        let batches = singles(&pieces, capacity).len();
        prop_assert!(batches >= optimum);
        prop_assert!(9 * batches <= 11 * optimum + 36, "{} batches for {}", batches, optimum);
    }
}

#[test]
fn a_sequence_above_the_capacity_is_alone_and_first() {
    let packing = singles(&[4, u32::MAX, 6, 11], 10);
    assert_eq!(packing, [vec![1], vec![3], vec![2, 0]]);
}

#[test]
fn accepts_a_capacity_above_all_tokens() {
    assert_eq!(singles(&[4, 9, 6], u32::MAX), [[1, 2, 0]]);
}

#[test]
fn fills_the_last_batch_of_a_section_with_the_next_groups() {
    // The section is 0 to 3. The batch of 2 has room for 4 and not for 5, with which the next one begins.
    let lengths = [6, 4, 3, 5, 2, 1, 9, 1];
    let packing = in_sections(&lengths, &[0, 1, 2, 3, 4, 5, 6, 7], 10, 18);
    assert_eq!(packing, [vec![0, 1], vec![3, 2, 4], vec![6, 5], vec![7]]);
}

#[test]
fn makes_no_batch_without_sequences() {
    assert!(singles(&[], 10).is_empty());
}

#[test]
fn accepts_empty_sequences_and_a_capacity_of_0() {
    assert_eq!(singles(&[0, 1, 0], 0), [vec![1], vec![0, 2]]);
}

#[test]
fn a_group_above_the_capacity_fills_new_batches_and_others_fill_their_rest() {
    // The windows 1 to 5 need three batches. The last has room for 0 and for 6 with 7, the first for 8.
    let groups = [vec![3], vec![4; 5], vec![2, 1], vec![2]];
    let expected = [vec![1, 2, 8], vec![3, 4], vec![5, 0, 6, 7]];
    assert_eq!(grouped(&groups, 10), expected);
}

#[test]
fn a_window_above_the_capacity_splits_its_group() {
    let packing = grouped(&[vec![4, 11, 4, 4], vec![6]], 10);
    assert_eq!(packing, [vec![0, 4], vec![1], vec![2, 3]]);
}

#[test]
#[should_panic(expected = "each sequence is in a group")]
fn refuses_groups_of_other_sequences() {
    pack(&[1, 2], &[0, 1, 2], 10);
}
