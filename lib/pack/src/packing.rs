//! Assigns sequences to batches: best-fit decreasing, section by section.

use std::cmp::Reverse;
use std::ops::Range;

use crate::Groups;
use crate::filling::Filling;

/// Tokens of a section. Results wait in memory until their section is computed, to be written in input order. Larger sections fill
/// batches better.
const SECTION_TOKENS: u64 = 1 << 17;

/// The sequences of each batch.
///
/// Batches are in the order of their creation: the longest groups of a section come first. The sequences of a batch are in the
/// order of packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    capacity: u32,
    /// Batch `i` is `indices[offsets[i]..offsets[i + 1]]`.
    offsets: Vec<u32>,
    indices: Vec<u32>,
}

/// Packs sequences of `lengths` tokens into batches of at most `capacity` tokens.
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
/// Time grows linearly with the number of sequences. Memory is 4 bytes per sequence and per batch, and a few dozen per group of a
/// section.
///
/// # Panics
/// If `groups` has another number of sequences than `lengths`, or if there are `u32::MAX` sequences or more.
pub fn pack(lengths: &[u32], groups: &Groups, capacity: u32) -> Packing {
    in_sections(lengths, groups, capacity, SECTION_TOKENS)
}

fn in_sections(lengths: &[u32], groups: &Groups, capacity: u32, section: u64) -> Packing {
    assert!(
        lengths.len() < u32::MAX as usize,
        "fewer than 2^32 - 1 sequences"
    );
    assert_eq!(
        groups.sequences(),
        lengths.len(),
        "each sequence is in a group"
    );
    let mut packing = Packing {
        capacity,
        offsets: vec![0],
        indices: Vec::with_capacity(lengths.len()),
    };
    while packing.indices.len() < lengths.len() {
        packing.add_section(lengths, groups, section.max(u64::from(capacity)));
    }
    packing
}

fn total(lengths: &[u32]) -> u64 {
    lengths.iter().map(|&length| u64::from(length)).sum()
}

impl Packing {
    /// Packs the next section, of about `tokens` tokens.
    fn add_section(&mut self, lengths: &[u32], groups: &Groups, tokens: u64) {
        let first = self.indices.len() as u32;
        let lengths_of = |group: &Range<u32>| &lengths[group.start as usize..group.end as usize];
        let mut end = first;
        let mut left = tokens;
        while left > 0 && (end as usize) < lengths.len() {
            let group = groups.beginning_at(end);
            left = left.saturating_sub(total(lengths_of(&group)).max(1));
            end = group.end;
        }
        let section = groups.between(first..end);
        let mut order: Vec<(u32, u64)> = section
            .map(|group| (group.start, total(lengths_of(&group))))
            .collect();
        // The sort is stable: equal lengths stay in input order.
        order.sort_by_key(|&(_, tokens)| Reverse(tokens));
        let mut filling = Filling::new(self.capacity, (end - first) as usize);
        for &(start, tokens) in &order {
            let members = lengths_of(&groups.beginning_at(start));
            if tokens <= u64::from(self.capacity) {
                filling.best_fit(members.len(), tokens as u32);
            } else {
                filling.next_fit(members);
            }
        }
        let order = order
            .iter()
            .flat_map(|&(start, _)| groups.beginning_at(start));
        self.gather(order, &filling);
        // The last batch is usually the emptiest.
        let last = self.offsets[self.offsets.len() - 2] as usize;
        let tokens = self.indices[last..].iter();
        let tokens = tokens.map(|&index| u64::from(lengths[index as usize]));
        let mut room = u64::from(self.capacity).saturating_sub(tokens.sum());
        while (end as usize) < lengths.len() {
            let group = groups.beginning_at(end);
            let Some(rest) = room.checked_sub(total(lengths_of(&group))) else {
                break;
            };
            room = rest;
            end = group.end;
            self.indices.extend(group);
        }
        if let Some(offset) = self.offsets.last_mut() {
            *offset = self.indices.len() as u32;
        }
    }

    /// Adds the batches of a section, given its sequences in the order of packing.
    fn gather(&mut self, order: impl Iterator<Item = u32>, filling: &Filling) {
        let start = self.indices.len() as u32;
        let mut offsets = vec![0; filling.batches as usize + 1];
        for &batch in &filling.batch_of {
            offsets[batch as usize + 1] += 1;
        }
        let mut end = start;
        for offset in &mut offsets {
            end += *offset;
            *offset = end;
        }
        self.offsets.extend_from_slice(&offsets[1..]);
        self.indices.resize(end as usize, 0);
        for (index, &batch) in order.zip(&filling.batch_of) {
            let next = &mut offsets[batch as usize];
            self.indices[*next as usize] = index;
            *next += 1;
        }
    }

    /// Returns the most tokens of a batch with more than one sequence.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of batches.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are no batches, because there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of sequences in all batches.
    pub fn sequences(&self) -> usize {
        self.indices.len()
    }

    /// Iterates over the batches: the indices of their sequences in `lengths`.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.offsets
            .windows(2)
            .map(|ends| &self.indices[ends[0] as usize..ends[1] as usize])
    }
}

#[cfg(test)]
mod tests;
