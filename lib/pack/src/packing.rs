//! Which sequence goes into which batch: best-fit decreasing, section by section.

use std::cmp::Reverse;
use std::ops::Range;

use crate::Groups;
use crate::filling::Filling;

/// Tokens of a section. Results wait in memory until their section is computed, so that they can be written in the order
/// of the input; the more there are, the better they fill batches.
const SECTION_TOKENS: u64 = 1 << 17;

/// Which sequences each batch holds.
///
/// Batches are in the order of their creation, so the longest groups of a section come first. In a batch, sequences are
/// in the order in which they were put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    capacity: u32,
    /// Batch `i` is `indices[offsets[i]..offsets[i + 1]]`.
    offsets: Vec<u32>,
    indices: Vec<u32>,
}

/// Packs sequences of `lengths` tokens into batches of at most `capacity` tokens.
///
/// What is packed are groups; most sequences are one of their own. The input is cut into sections of 131,072 tokens, or of
/// as many as a batch holds if these are more, and the groups of a section are packed by best-fit decreasing, which
/// needs at most 11/9 of the fewest batches possible, plus a constant (Johnson et al. 1974). From the longest group
/// to the shortest (equal lengths in the order given), each goes into the fullest batch that still has room for
/// all of it; among equally full batches into the one that has been that full for longest; and if there is none,
/// into a new one. Its sequences lie next to one another in their order. What comes next in the input fills the last
/// pack, as long as it fits, and the next section begins behind it: all sequences of a section come before all
/// of the next one.
///
/// A group longer than `capacity` begins a new batch, and its sequences fill as many as they need by next-fit, in
/// their order. So its batches follow one another and each begins with sequences of the group; the room that is
/// left in them is for shorter groups, and where there are none it stays empty. A sequence longer than `capacity`
/// gets a batch of its own.
///
/// Each section is sorted and packed by itself, so that time grows as the number of sequences. Memory is 4 bytes for each
/// sequence and for each batch, and a few dozen for each group of a section.
///
/// # Panics
/// Unless `groups` are those of as many sequences; with `u32::MAX` sequences or more, which is 16 GiB of
/// `lengths` alone.
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
    /// Packs what comes next, of about so many tokens.
    fn add_section(&mut self, lengths: &[u32], groups: &Groups, tokens: u64) {
        let first = self.indices.len() as u32;
        let of = |group: &Range<u32>| &lengths[group.start as usize..group.end as usize];
        let mut end = first;
        let mut left = tokens;
        while left > 0 && (end as usize) < lengths.len() {
            let group = groups.beginning_at(end);
            left = left.saturating_sub(total(of(&group)).max(1));
            end = group.end;
        }
        let section = groups.between(first..end);
        let mut order: Vec<(u32, u64)> = section
            .map(|group| (group.start, total(of(&group))))
            .collect();
        // A stable sort: equal lengths stay in the order given.
        order.sort_by_key(|&(_, tokens)| Reverse(tokens));
        let mut filling = Filling::new(self.capacity, (end - first) as usize);
        for &(start, tokens) in &order {
            let members = of(&groups.beginning_at(start));
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
        // The last batch is the emptiest, as a rule.
        let last = self.offsets[self.offsets.len() - 2] as usize;
        let tokens: u64 = self.indices[last..]
            .iter()
            .map(|&index| u64::from(lengths[index as usize]))
            .sum();
        let mut room = u64::from(self.capacity).saturating_sub(tokens);
        while (end as usize) < lengths.len() {
            let group = groups.beginning_at(end);
            let Some(rest) = room.checked_sub(total(of(&group))) else {
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

    /// Adds the batches of a section; sequences are put in this order.
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
            let place = &mut offsets[batch as usize];
            self.indices[*place as usize] = index;
            *place += 1;
        }
    }

    /// The most tokens that a batch may hold, unless it is one sequence.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The number of batches.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is no batch, because there was no sequence.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of sequences in all batches.
    pub fn sequences(&self) -> usize {
        self.indices.len()
    }

    /// For each batch the indices of its sequences in `lengths`.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.offsets
            .windows(2)
            .map(|ends| &self.indices[ends[0] as usize..ends[1] as usize])
    }
}

#[cfg(test)]
mod tests;
