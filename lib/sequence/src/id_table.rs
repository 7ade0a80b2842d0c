//! A table of ids that grows without doubling.
//!
//! General tables double when they are full, and hold both copies meanwhile: three times the memory that a large set needs.
//! Here the ids are in several parts by their hash, and each part grows by a quarter, in place.

use std::hint::black_box;

/// The bits of a value.
const VALUE_BITS: u32 = 40;
/// The bits of a fingerprint that are stored. The part of an entry tells some more.
const KEY_BITS: u32 = u128::BITS - VALUE_BITS;
/// The bits of a fingerprint that select its part.
const PART_BITS: u32 = 4;
/// The entries of a block, 64 KiB. Memory comes in blocks of one size, and a part that grows gives its blocks to its larger self:
/// of arrays that grow, an allocator keeps a quarter.
const BLOCK: usize = 1 << 12;

/// Maps fingerprints of ids to numbers, in 16 bytes an entry; at most nine tenths of the entries are in use.
pub(crate) struct IdTable {
    parts: Vec<TablePart>,
}

/// A hash table with linear probing. Entries are in the order of their keys, so that a search ends early.
#[derive(Clone, Default)]
struct TablePart {
    /// Entries: key, then value plus one; 0 if free. Those that do not fit before `capacity` follow it.
    blocks: Vec<Box<[u128]>>,
    capacity: usize,
    used: usize,
}

impl Default for IdTable {
    fn default() -> Self {
        Self {
            parts: vec![TablePart::default(); 1 << PART_BITS],
        }
    }
}

impl IdTable {
    /// The largest value.
    pub(crate) const MAX_VALUE: u64 = (1 << VALUE_BITS) - 2;

    /// Returns the value of a fingerprint.
    pub(crate) fn get(&self, fingerprint: u128) -> Option<u64> {
        let part = &self.parts[part_of(fingerprint)];
        let at = part.find(key_of(fingerprint)).ok()?;
        Some(value_of(part.get(at)?))
    }

    /// Sets the value of a fingerprint.
    ///
    /// # Panics
    /// If `value` is above [`MAX_VALUE`](Self::MAX_VALUE).
    pub(crate) fn insert(&mut self, fingerprint: u128, value: u64) {
        if self.add(fingerprint, value).is_some() {
            let (part, key) = (part_of(fingerprint), key_of(fingerprint));
            if let Ok(at) = self.parts[part].find(key) {
                *self.parts[part].entry_mut(at) = entry(key, value);
            }
        }
    }

    /// Sets the value of a new fingerprint. Returns the value of a known one.
    ///
    /// # Panics
    /// If `value` is above [`MAX_VALUE`](Self::MAX_VALUE).
    pub(crate) fn add(&mut self, fingerprint: u128, value: u64) -> Option<u64> {
        assert!(value <= Self::MAX_VALUE, "{value} has more than 40 bits");
        let key = key_of(fingerprint);
        let part = &mut self.parts[part_of(fingerprint)];
        match part.find(key) {
            Ok(at) => Some(value_of(part.get(at)?)),
            Err(at) => {
                part.add(at, entry(key, value));
                None
            }
        }
    }

    /// Reads the places of fingerprints, so that they are in the cache.
    pub(crate) fn prefetch(&self, fingerprints: impl Iterator<Item = u128>) {
        let places = fingerprints.map(|fingerprint| {
            let part = &self.parts[part_of(fingerprint)];
            let first = part.get(part.place(key_of(fingerprint)));
            first.unwrap_or(0) as u64
        });
        black_box(places.fold(0, u64::wrapping_add));
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.used).sum()
    }
}

fn part_of(fingerprint: u128) -> usize {
    (fingerprint >> (u128::BITS - PART_BITS)) as usize
}

fn key_of(fingerprint: u128) -> u128 {
    fingerprint & ((1 << KEY_BITS) - 1)
}

fn entry(key: u128, value: u64) -> u128 {
    (key << VALUE_BITS) | u128::from(value + 1)
}

fn value_of(entry: u128) -> u64 {
    (entry & ((1 << VALUE_BITS) - 1)) as u64 - 1
}

impl TablePart {
    /// Returns the first place of a key. Larger keys have the same or a later place.
    fn place(&self, key: u128) -> usize {
        let high = u128::from((key >> (KEY_BITS - u64::BITS)) as u64);
        ((high * self.capacity as u128) >> u64::BITS) as usize
    }

    /// Returns the index of a key, or where it belongs.
    fn find(&self, key: u128) -> Result<usize, usize> {
        let mut at = self.place(key);
        while let Some(entry) = self.get(at) {
            match entry >> VALUE_BITS {
                found if entry == 0 || found > key => return Err(at),
                found if found == key => return Ok(at),
                _ => at += 1,
            }
        }
        Err(at)
    }

    fn get(&self, at: usize) -> Option<u128> {
        self.blocks.get(at / BLOCK).map(|block| block[at % BLOCK])
    }

    /// Returns an entry to be changed. Makes the blocks before it.
    fn entry_mut(&mut self, at: usize) -> &mut u128 {
        &mut self.entries_mut(at)[0]
    }

    /// Returns the entries from `at` to the end of their block. Makes the blocks before it.
    fn entries_mut(&mut self, at: usize) -> &mut [u128] {
        while self.blocks.len() <= at / BLOCK {
            self.blocks.push(vec![0; BLOCK].into_boxed_slice());
        }
        &mut self.blocks[at / BLOCK][at % BLOCK..]
    }

    /// Adds an entry whose key is not there and belongs at `at`.
    fn add(&mut self, mut at: usize, entry: u128) {
        if 10 * (self.used + 1) > 9 * self.capacity {
            self.grow();
            at = self.find(entry >> VALUE_BITS).unwrap_or_else(|at| at);
        }
        // The entries up to the next free place move by one: dozens, in a table that is nearly full.
        let mut first = entry;
        while first != 0 {
            let entries = self.entries_mut(at);
            let free = entries.iter().position(|&entry| entry == 0);
            let end = free.map_or(entries.len(), |free| free + 1);
            entries[..end].rotate_right(1);
            first = std::mem::replace(&mut entries[0], first);
            at += end;
        }
        self.used += 1;
    }

    fn grow(&mut self) {
        let blocks = self.capacity / BLOCK;
        self.capacity = (blocks + (blocks / 4).max(1)) * BLOCK;
        self.used = 0;
        let mut spare = Vec::new();
        for mut block in std::mem::take(&mut self.blocks) {
            for entry in block.iter_mut().map(std::mem::take) {
                if entry != 0 {
                    self.push(entry, &mut spare);
                }
            }
            spare.push(block);
        }
        let missing = (self.capacity / BLOCK).saturating_sub(self.blocks.len());
        self.blocks.extend(spare.into_iter().take(missing));
    }

    /// Adds an entry with a larger key than all others. Takes blocks from `spare` first.
    fn push(&mut self, entry: u128, spare: &mut Vec<Box<[u128]>>) {
        let mut at = self.place(entry >> VALUE_BITS);
        while self.get(at).is_some_and(|entry| entry != 0) {
            at += 1;
        }
        while self.blocks.len() <= at / BLOCK
            && let Some(block) = spare.pop()
        {
            self.blocks.push(block);
        }
        *self.entry_mut(at) = entry;
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_128;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(entries in proptest::collection::vec((0u64..500, 0..=IdTable::MAX_VALUE), 0..2000)) {
            let (mut table, mut map) = (IdTable::default(), HashMap::new());
            for (name, value) in entries {
                // All in one part.
                let fingerprint = xxh3_128(&name.to_le_bytes()) >> PART_BITS;
                prop_assert_eq!(table.get(fingerprint), map.insert(fingerprint, value));
                table.insert(fingerprint, value);
                prop_assert_eq!(table.get(fingerprint), Some(value));
            }
            prop_assert_eq!(table.len(), map.len());
            for (fingerprint, value) in map {
                prop_assert_eq!(table.get(fingerprint), Some(value));
            }
        }
    }

    #[test]
    fn an_entry_takes_at_most_24_bytes() {
        let mut table = IdTable::default();
        for name in 0..2_000_000u64 {
            table.insert(xxh3_128(&name.to_le_bytes()), name);
            if name > 1_000_000 && name.is_multiple_of(9_999) {
                let blocks = table.parts.iter().map(|part| part.blocks.len());
                // A part that grows moves from block to block.
                let bytes = (blocks.sum::<usize>() + 2) * BLOCK * 16;
                assert!(bytes as u64 <= 24 * name, "{bytes} for {name}");
            }
        }
    }
}
