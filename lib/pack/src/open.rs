//! The batches that still have room, found by how much.

use std::collections::BTreeSet;

/// Open batches, by the room that they have left.
#[derive(Debug, Default)]
pub(crate) struct OpenPacks {
    /// Room in tokens, the number of the push that brought it about, pack.
    batches: BTreeSet<(u32, u32, u32)>,
    pushes: u32,
}

impl OpenPacks {
    /// Adds `pack`, which has room for `room` tokens.
    pub(crate) fn push(&mut self, batch: u32, room: u32) {
        self.batches.insert((room, self.pushes, batch));
        self.pushes += 1;
    }

    /// Takes out the fullest batch with room for `tokens`, with its room; among equally full batches the one
    /// that has been that full for longest.
    pub(crate) fn pop_best_fit(&mut self, tokens: u32) -> Option<(u32, u32)> {
        let found = *self.batches.range((tokens, 0, 0)..).next()?;
        self.batches.remove(&found);
        let (room, _, batch) = found;
        Some((batch, room))
    }
}
