//! How much memory a search takes, and how often it reads the targets.

use std::num::NonZero;

use plmkit_kit::{Stop, plural};

use super::NeighboursConfig;
use super::block::{QUERIES, Source};
use super::search::WINDOW_BYTES;
use crate::DatasetError;
use crate::merge::BATCH_ROWS;

/// The memory of the program itself, of metadata, and of what the allocator keeps.
const BASE_BYTES: u64 = 80 << 20;
/// The most bytes that a key, with its id and labels, is expected to take.
const KEY_BYTES: u64 = 160;

/// How a search is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The memory that it takes, in bytes.
    pub memory: u64,
    /// The queries in memory at once. All targets are read for these.
    pub queries: u64,
    /// How often all targets are read.
    pub passes: u64,
    /// Threads.
    pub threads: NonZero<usize>,
    /// The bytes of windows on the rows of the queries.
    pub(super) windows: u64,
}

impl Plan {
    pub(super) fn new(
        config: &NeighboursConfig,
        queries: Source<'_>,
        targets: Source<'_>,
        stop: &Stop,
    ) -> Result<Self, DatasetError> {
        let vector = (queries.dim() * size_of::<f32>()) as u64;
        let [rows, all] = [queries, targets].map(|source| source.dataset.rows());
        let top = (config.top.get() as u64).min(all);
        // A hit, its rank among those of its query, and the key of the target.
        let query = vector + KEY_BYTES + top * (64 + KEY_BYTES);
        let batch = BATCH_ROWS as u64;
        // The values, stored, in f32 and packed; products.
        let thread = batch * (3 * vector + (4 * QUERIES) as u64);
        // Pages are decoded beside the windows.
        let windows = queries.read(u64::MAX, stop).bytes();
        let least = BASE_BYTES + 2 * WINDOW_BYTES + thread + batch.min(rows) * query;
        // An eighth of the memory is enough for windows.
        let least = least + (2 * windows).min(least.div_ceil(3));
        if least > config.memory {
            return Err(DatasetError::usage(format!(
                "--memory: expected {} MiB or more for vectors of {} values and {} of each query",
                least.div_ceil(1 << 20),
                queries.dim(),
                plural(top, "hit"),
            )));
        }
        let windows = windows.min(config.memory / 8);
        let fixed = BASE_BYTES + 2 * (WINDOW_BYTES + windows);
        let room = config.memory - fixed;
        let spare = room.saturating_sub(thread + batch.min(rows) * query) / 2;
        let threads = (1 + spare / thread).min(config.threads.get() as u64);
        let room = room - threads * thread;
        let at_once = (room / query / batch * batch).max(batch);
        let held = at_once.min(rows);
        Ok(Self {
            memory: fixed + threads * thread + held * query,
            // With room for one more batch of rows, all are read at once.
            queries: at_once.min(rows + batch),
            passes: rows.div_ceil(at_once),
            threads: NonZero::new(threads as usize).unwrap_or(NonZero::<usize>::MIN),
            windows,
        })
    }
}
