//! Assigns sequences to batches: best-fit decreasing, section by section.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// Tokens of a section. Results wait in memory until their section is computed, to be written in input order. Larger sections fill
/// batches better.
const SECTION_TOKENS: u64 = 1 << 17;

/// Packs sequences of `lengths` tokens into batches of at most `capacity` tokens. A batch is the indices of its sequences in `lengths`.
///
/// A group is adjacent sequences with equal `keys`, such as the windows of a protein, which stay together. Most groups have one
/// sequence. Batches are in the order of their creation: the longest groups of a section come first. The sequences of a batch are
/// in the order of packing.
///
/// The input is divided into sections of 131,072 tokens, or of `capacity` tokens if that is more. The groups of a section are
/// packed by best-fit decreasing, which needs at most 11/9 of the fewest possible batches, plus a constant (Johnson et al. 1974):
/// from the longest to the shortest group (equal lengths in input order), each goes into the fullest batch with room for all of
/// it, or into a new batch. Among equally full batches, it is the one that has been that full for longest. The sequences of a group
/// are adjacent and in order. The groups after the section fill its last batch, and the next section starts after them: all
/// sequences of a section come before those of the next.
///
/// A group above `capacity` starts a new batch. Its sequences fill consecutive batches by next-fit; shorter groups fill the rest
/// of these. A sequence above `capacity` gets its own batch.
///
/// Time grows linearly with the number of sequences. Memory is 4 to 8 bytes per sequence, a few dozen per batch and per group of a
/// section.
///
/// # Panics
/// If there are more or fewer `keys` than `lengths`, or if there are `u32::MAX` sequences or more.
pub fn pack<K: PartialEq>(lengths: &[u32], keys: &[K], capacity: u32) -> Vec<Vec<u32>> {
    in_sections(lengths, keys, capacity, SECTION_TOKENS)
}

fn in_sections<K: PartialEq>(
    lengths: &[u32],
    keys: &[K],
    capacity: u32,
    section: u64,
) -> Vec<Vec<u32>> {
    assert!(
        lengths.len() < u32::MAX as usize,
        "fewer than 2^32 - 1 sequences"
    );
    assert_eq!(keys.len(), lengths.len(), "each sequence is in a group");
    let mut groups = groups(lengths, keys).peekable();
    let mut batches = Vec::new();
    while groups.peek().is_some() {
        let mut order = Vec::new();
        let mut left = section.max(capacity.into());
        while left > 0
            && let Some((group, tokens)) = groups.next()
        {
            left = left.saturating_sub(tokens.max(1));
            order.push((group, tokens));
        }
        // The sort is stable: equal lengths stay in input order.
        order.sort_by_key(|&(_, tokens)| Reverse(tokens));
        let mut filling = Filling::new(capacity);
        for (group, tokens) in order {
            if tokens <= u64::from(capacity) {
                filling.best_fit(group, tokens as u32);
            } else {
                filling.next_fit(group, lengths);
            }
        }
        // The last batch is usually the emptiest.
        if let Some(last) = filling.batches.last_mut() {
            let tokens = last.iter().map(|&index| u64::from(lengths[index as usize]));
            let mut room = u64::from(capacity).saturating_sub(tokens.sum());
            while let Some((group, tokens)) = groups.next_if(|(_, tokens)| *tokens <= room) {
                room -= tokens;
                last.extend(group);
            }
        }
        batches.append(&mut filling.batches);
    }
    batches
}

/// Iterates over the groups, with their tokens.
fn groups<K: PartialEq>(lengths: &[u32], keys: &[K]) -> impl Iterator<Item = (Range<u32>, u64)> {
    let mut end = 0;
    keys.chunk_by(|key, next| key == next).map(move |group| {
        let start = end;
        end += group.len();
        let lengths = lengths[start..end].iter();
        let tokens = lengths.map(|&length| u64::from(length)).sum();
        (start as u32..end as u32, tokens)
    })
}

/// The batches of a section while they are filled.
struct Filling {
    capacity: u32,
    batches: Vec<Vec<u32>>,
    /// Batches with room for more: room in tokens, number of the push, batch.
    open: BTreeSet<(u32, u32, u32)>,
    pushes: u32,
}

impl Filling {
    fn new(capacity: u32) -> Self {
        Self {
            capacity,
            batches: Vec::new(),
            open: BTreeSet::new(),
            pushes: 0,
        }
    }

    /// Opens a batch with this `room` to other groups.
    fn open(&mut self, batch: usize, room: u32) {
        self.open.insert((room, self.pushes, batch as u32));
        self.pushes += 1;
    }

    /// Puts a group that fits into a batch where it leaves the least room. Among equally full batches, it is the one opened first.
    fn best_fit(&mut self, group: Range<u32>, tokens: u32) {
        let found = self.open.range((tokens, 0, 0)..).next().copied();
        let (batch, room) = if let Some(entry @ (room, _, batch)) = found {
            self.open.remove(&entry);
            (batch as usize, room)
        } else {
            self.batches.push(Vec::new());
            (self.batches.len() - 1, self.capacity)
        };
        self.batches[batch].extend(group);
        self.open(batch, room - tokens);
    }

    /// Puts a group that does not fit into a batch into new ones, by next-fit.
    fn next_fit(&mut self, group: Range<u32>, lengths: &[u32]) {
        let mut room = None; // in the group's last batch
        for index in group {
            let length = lengths[index as usize];
            let mut left = room.and_then(|room: u32| room.checked_sub(length));
            if left.is_none() {
                self.leave_open(room);
                self.batches.push(Vec::new());
                // The batch of a sequence above the capacity is never open.
                left = self.capacity.checked_sub(length);
            }
            room = left;
            self.batches.last_mut().expect("a batch").push(index);
        }
        self.leave_open(room);
    }

    /// Opens the last batch to other groups, if it has `room`.
    fn leave_open(&mut self, room: Option<u32>) {
        if let Some(room) = room {
            self.open(self.batches.len() - 1, room);
        }
    }
}

#[cfg(test)]
mod tests;
