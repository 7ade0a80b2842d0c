//! The packs that still have room, found by how much.

use crate::levels::LevelSet;

/// Marks the end of a queue; a pack never has this number, since there are fewer packs than `u32::MAX`.
const NONE: u32 = u32::MAX;

/// The first and last pack of one queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

/// Open packs in one queue for each amount of room left, linked through a single array.
///
/// Eight bytes and an eighth for each possible amount of room, four for each pack.
#[derive(Debug)]
pub(crate) struct OpenPacks {
    occupied: LevelSet,
    queues: Vec<Queue>,
    /// The pack behind each pack in its queue.
    behind: Vec<u32>,
}

impl OpenPacks {
    /// No pack yet; each has room for at most `capacity` tokens.
    pub(crate) fn new(capacity: u32) -> Self {
        let empty = Queue {
            head: NONE,
            tail: NONE,
        };
        Self {
            occupied: LevelSet::new(capacity),
            queues: vec![empty; capacity as usize + 1],
            behind: Vec::new(),
        }
    }

    /// Puts `pack` at the end of the queue of packs with room for `room` tokens.
    pub(crate) fn push(&mut self, pack: u32, room: u32) {
        if self.behind.len() <= pack as usize {
            self.behind.resize(pack as usize + 1, NONE);
        }
        self.behind[pack as usize] = NONE;
        let queue = &mut self.queues[room as usize];
        if queue.head == NONE {
            queue.head = pack;
            self.occupied.insert(room);
        } else {
            self.behind[queue.tail as usize] = pack;
        }
        queue.tail = pack;
    }

    /// Takes out the fullest pack with room for `tokens`, with its room; among equally full packs the one
    /// that has been that full for longest.
    pub(crate) fn pop_best_fit(&mut self, tokens: u32) -> Option<(u32, u32)> {
        let room = self.occupied.first_from(tokens)?;
        let queue = &mut self.queues[room as usize];
        let pack = queue.head;
        queue.head = self.behind[pack as usize];
        if queue.head == NONE {
            self.occupied.remove(room);
        }
        Some((pack, room))
    }
}
