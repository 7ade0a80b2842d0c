//! Best-fit decreasing: which sequence goes into which pack.

use crate::open::OpenPacks;
use crate::order::longest_first;

/// Which sequences each pack holds.
///
/// Packs are in the order of their creation, so the longest sequences come first and a run that is going to
/// be short of memory is so at its beginning. In a pack, sequences are in the order in which they were put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    capacity: u32,
    /// Pack `i` is `indices[offsets[i]..offsets[i + 1]]`.
    offsets: Vec<u32>,
    indices: Vec<u32>,
}

/// Packs sequences of `lengths` tokens into packs of at most `capacity` tokens by best-fit decreasing, which
/// needs at most 11/9 of the fewest packs possible, plus a constant (Johnson et al. 1974).
///
/// From the longest sequence to the shortest (equal lengths in the order given), each goes into the fullest
/// pack that still has room for it; among equally full packs into the one that has been that full for longest;
/// and if there is none, into a new one. A sequence longer than `capacity` gets a pack of its own.
///
/// Time is linear in the number of sequences. Memory is 12 bytes for each sequence and for each pack, and 8
/// for each token of capacity.
///
/// # Panics
/// With `u32::MAX` sequences or more, which is 16 GiB of `lengths` alone.
pub fn plan(lengths: &[u32], capacity: u32) -> Plan {
    assert!(
        lengths.len() < u32::MAX as usize,
        "fewer than 2^32 - 1 sequences"
    );
    let order = longest_first(lengths, capacity);

    // No pack can have more room left than all sequences could fill, so a huge capacity costs nothing.
    let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let room_at_most = u64::from(capacity).min(total) as u32;
    let mut open = OpenPacks::new(room_at_most);

    let mut packs = 0_u32;
    let mut pack_of = Vec::with_capacity(order.len()); // one for each element of `order`
    for &index in &order {
        let length = lengths[index as usize];
        let (pack, room) = open.pop_best_fit(length).unwrap_or_else(|| {
            packs += 1;
            (packs - 1, room_at_most)
        });
        // A sequence longer than the capacity leaves no room to speak of: its pack never opens.
        if let Some(left) = room.checked_sub(length) {
            open.push(pack, left);
        }
        pack_of.push(pack);
    }
    gather(capacity, packs, &order, &pack_of)
}

/// Brings the sequences of each pack together, keeping their order.
fn gather(capacity: u32, packs: u32, order: &[u32], pack_of: &[u32]) -> Plan {
    let mut offsets = vec![0_u32; packs as usize + 1];
    for &pack in pack_of {
        offsets[pack as usize + 1] += 1;
    }
    for pack in 0..packs as usize {
        offsets[pack + 1] += offsets[pack];
    }
    let mut next = offsets.clone();
    let mut indices = vec![0; order.len()];
    for (&index, &pack) in order.iter().zip(pack_of) {
        let place = &mut next[pack as usize];
        indices[*place as usize] = index;
        *place += 1;
    }
    Plan {
        capacity,
        offsets,
        indices,
    }
}

impl Plan {
    /// The most tokens that a pack may hold, unless it is one sequence.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The number of packs.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is no pack, because there was no sequence.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of sequences in all packs.
    pub fn sequences(&self) -> usize {
        self.indices.len()
    }

    /// For each pack the indices of its sequences in `lengths`.
    pub fn packs(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.offsets
            .windows(2)
            .map(|ends| &self.indices[ends[0] as usize..ends[1] as usize])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Best-fit decreasing as the textbook tells it, quadratic; a pack moves to the back when it changes.
    fn naive(lengths: &[u32], capacity: u32) -> Vec<Vec<u32>> {
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(lengths[index as usize]));
        let mut open: Vec<(usize, u32)> = Vec::new(); // (pack, room)
        let mut packs: Vec<Vec<u32>> = Vec::new();
        for index in order {
            let length = lengths[index as usize];
            let best = (0..open.len())
                .filter(|&place| open[place].1 >= length)
                .min_by_key(|&place| open[place].1);
            let (pack, room) = if let Some(place) = best {
                open.remove(place)
            } else {
                packs.push(Vec::new());
                (packs.len() - 1, capacity)
            };
            packs[pack].push(index);
            if length <= capacity {
                open.push((pack, room - length));
            }
        }
        packs
    }

    fn owned(plan: &Plan) -> Vec<Vec<u32>> {
        plan.packs().map(<[u32]>::to_vec).collect()
    }

    fn sequences() -> impl Strategy<Value = (Vec<u32>, u32)> {
        (prop::collection::vec(2_u32..120, 0..400), 1_u32..300)
    }

    proptest! {
        #[test]
        fn equals_the_quadratic_algorithm((lengths, capacity) in sequences()) {
            prop_assert_eq!(owned(&plan(&lengths, capacity)), naive(&lengths, capacity));
        }

        #[test]
        fn holds_every_sequence_once_and_no_pack_too_full((lengths, capacity) in sequences()) {
            let plan = plan(&lengths, capacity);
            let mut seen: Vec<u32> = plan.packs().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len() as u32).collect::<Vec<_>>());
            for pack in plan.packs() {
                let tokens: u32 = pack.iter().map(|&index| lengths[index as usize]).sum();
                prop_assert!(!pack.is_empty());
                prop_assert!(tokens <= capacity || pack.len() == 1);
            }
        }

        #[test]
        fn stays_within_the_bound_of_best_fit_decreasing(
            lengths in prop::collection::vec(1_u32..=1000, 1..500),
            spare in 0_u32..2000,
        ) {
            // Cutting full packs into random pieces gives an instance whose optimum is known.
            let capacity = 1000 + spare;
            let mut pieces = Vec::new();
            for &cut in &lengths {
                pieces.extend([cut, capacity - cut]);
            }
            let optimum = lengths.len();
            let packs = plan(&pieces, capacity).len();
            prop_assert!(packs >= optimum);
            prop_assert!(9 * packs <= 11 * optimum + 36, "{} packs for {}", packs, optimum);
        }
    }

    #[test]
    fn puts_a_sequence_longer_than_the_capacity_by_itself_and_first() {
        let plan = plan(&[4, u32::MAX, 6, 11], 10);
        assert_eq!(owned(&plan), [vec![1], vec![3], vec![2, 0]]);
    }

    #[test]
    fn takes_a_capacity_beyond_all_tokens_without_paying_for_it() {
        assert_eq!(owned(&plan(&[4, 9, 6], u32::MAX)), [[1, 2, 0]]);
    }

    #[test]
    fn makes_no_pack_of_no_sequence() {
        let plan = plan(&[], 10);
        assert!(plan.is_empty());
        assert_eq!((plan.len(), plan.sequences(), plan.capacity()), (0, 0, 10));
    }

    #[test]
    fn takes_empty_sequences_and_no_capacity() {
        assert_eq!(owned(&plan(&[0, 1, 0], 0)), [vec![1], vec![0, 2]]);
    }
}
