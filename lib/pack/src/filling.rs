//! Batches while they are being filled.

use std::iter;

use crate::open::OpenPacks;

/// Batches while they are being filled.
pub(crate) struct Filling {
    capacity: u32,
    pub(crate) batches: u32,
    open: OpenPacks,
    /// The batch of each sequence, in the order in which they are put.
    pub(crate) batch_of: Vec<u32>,
}

impl Filling {
    pub(crate) fn new(capacity: u32, sequences: usize) -> Self {
        Self {
            capacity,
            batches: 0,
            open: OpenPacks::default(),
            batch_of: Vec::with_capacity(sequences),
        }
    }

    /// Puts a group of so many sequences, which fits into a batch, where it leaves the least room.
    pub(crate) fn best_fit(&mut self, sequences: usize, tokens: u32) {
        let (batch, room) = self.open.pop_best_fit(tokens).unwrap_or_else(|| {
            self.batches += 1;
            (self.batches - 1, self.capacity)
        });
        self.open.push(batch, room - tokens);
        self.batch_of.extend(iter::repeat_n(batch, sequences));
    }

    /// Puts a group, which fits into no batch, into new ones, each filled as far as the next sequence allows.
    pub(crate) fn next_fit(&mut self, lengths: &[u32]) {
        let mut room = None; // in the last batch, once it is the group's
        for &length in lengths {
            let mut left = room.and_then(|room: u32| room.checked_sub(length));
            if left.is_none() {
                self.leave_open(room);
                self.batches += 1;
                // A sequence longer than the capacity leaves no room to speak of: its batch never opens.
                left = self.capacity.checked_sub(length);
            }
            room = left;
            self.batch_of.push(self.batches - 1);
        }
        self.leave_open(room);
    }

    /// Leaves the last batch to other groups, if it has `room`.
    fn leave_open(&mut self, room: Option<u32>) {
        if let Some(room) = room {
            self.open.push(self.batches - 1, room);
        }
    }
}
