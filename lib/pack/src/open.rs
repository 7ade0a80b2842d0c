//! The packs that still have room, found by how much.

use std::collections::BTreeSet;

/// Open packs, by the room that they have left.
#[derive(Debug, Default)]
pub(crate) struct OpenPacks {
    /// Room in tokens, the number of the push that brought it about, pack.
    packs: BTreeSet<(u32, u32, u32)>,
    pushes: u32,
}

impl OpenPacks {
    /// Adds `pack`, which has room for `room` tokens.
    pub(crate) fn push(&mut self, pack: u32, room: u32) {
        self.packs.insert((room, self.pushes, pack));
        self.pushes += 1;
    }

    /// Takes out the fullest pack with room for `tokens`, with its room; among equally full packs the one
    /// that has been that full for longest.
    pub(crate) fn pop_best_fit(&mut self, tokens: u32) -> Option<(u32, u32)> {
        let found = *self.packs.range((tokens, 0, 0)..).next()?;
        self.packs.remove(&found);
        let (room, _, pack) = found;
        Some((pack, room))
    }
}
