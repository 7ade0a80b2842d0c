//! Fills batches.

use std::collections::BTreeSet;
use std::iter;

/// The batches of a section while they are filled.
pub(crate) struct Filling {
    capacity: u32,
    pub(crate) batches: u32,
    open: OpenBatches,
    /// The batch of each sequence, in the order of packing.
    pub(crate) batch_of: Vec<u32>,
}

impl Filling {
    pub(crate) fn new(capacity: u32, sequences: usize) -> Self {
        Self {
            capacity,
            batches: 0,
            open: OpenBatches::default(),
            batch_of: Vec::with_capacity(sequences),
        }
    }

    /// Puts a group that fits into a batch where it leaves the least room.
    pub(crate) fn best_fit(&mut self, sequences: usize, tokens: u32) {
        let (batch, room) = self.open.pop_best_fit(tokens).unwrap_or_else(|| {
            self.batches += 1;
            (self.batches - 1, self.capacity)
        });
        self.open.push(batch, room - tokens);
        self.batch_of.extend(iter::repeat_n(batch, sequences));
    }

    /// Puts a group that does not fit into a batch into new ones, by next-fit.
    pub(crate) fn next_fit(&mut self, lengths: &[u32]) {
        let mut room = None; // in the group's last batch
        for &length in lengths {
            let mut left = room.and_then(|room: u32| room.checked_sub(length));
            if left.is_none() {
                self.leave_open(room);
                self.batches += 1;
                // The batch of a sequence above the capacity is never open.
                left = self.capacity.checked_sub(length);
            }
            room = left;
            self.batch_of.push(self.batches - 1);
        }
        self.leave_open(room);
    }

    /// Opens the last batch to other groups, if it has `room`.
    fn leave_open(&mut self, room: Option<u32>) {
        if let Some(room) = room {
            self.open.push(self.batches - 1, room);
        }
    }
}

/// Open batches, sorted by their room.
#[derive(Debug, Default)]
struct OpenBatches {
    /// (room in tokens, number of the push, batch)
    batches: BTreeSet<(u32, u32, u32)>,
    pushes: u32,
}

impl OpenBatches {
    /// Adds a batch with room for `room` tokens.
    fn push(&mut self, batch: u32, room: u32) {
        self.batches.insert((room, self.pushes, batch));
        self.pushes += 1;
    }

    /// Removes and returns the fullest batch with room for `tokens`, and its room. Among equally full batches, it is the one pushed
    /// first.
    fn pop_best_fit(&mut self, tokens: u32) -> Option<(u32, u32)> {
        let found = *self.batches.range((tokens, 0, 0)..).next()?;
        self.batches.remove(&found);
        let (room, _, batch) = found;
        Some((batch, room))
    }
}
