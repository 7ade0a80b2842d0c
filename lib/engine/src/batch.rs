//! A batch of the run, and its result.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use plmkit_contract::{Reason, Reject};
use plmkit_esm2::DeviceTimes;
use plmkit_store::PackedBatch;
use serde::{Deserialize, Serialize};

/// One batch and where it comes from.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Position among all batches of the run.
    pub(crate) index: u64,
    /// The batches file.
    pub(crate) path: Arc<Path>,
    /// Position in that file.
    pub(crate) index_in_file: usize,
    /// Whether it holds what was left over when the other batches of its file were filled.
    pub(crate) tail: bool,
    /// Tokens that the batch was packed for, if the file says so.
    pub(crate) token_budget: Option<u64>,
    /// Its sequences.
    pub(crate) packed: PackedBatch,
    /// Whether the windows of a protein give one row together.
    pub(crate) stitched: bool,
    /// Whether no protein is unfinished at its end.
    pub(crate) ends_whole: bool,
}

/// A batch on its way to the computation, with its result where an earlier run saved that.
pub(crate) struct QueuedBatch {
    pub(crate) batch: Batch,
    pub(crate) saved: Option<BatchResult>,
}

/// The rows of the output that a batch gives.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BatchResult {
    /// The rows. Between processes they travel beside the rest.
    #[serde(skip, default = "no_rows")]
    pub(crate) rows: RecordBatch,
    /// The rows of the batch that should give a row of the output and have no vectors, rising.
    pub(crate) rejected: Vec<(usize, Reason)>,
    /// How the computation went; `None` where an earlier run computed the rows.
    pub(crate) stats: Option<BatchStats>,
}

/// How the computation of a batch went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchStats {
    /// Time that the computation waited for the batch.
    pub(crate) wait: Duration,
    pub(crate) compute: Duration,
    /// Times by the clock of a device that has one.
    pub(crate) device: Option<DeviceTimes>,
    /// Batches that lay ready behind this one.
    pub(crate) queue_depth: u64,
    /// The worker that computed it.
    pub(crate) worker: Option<u64>,
    /// How many times sequences were computed in two halves because memory ran out.
    pub(crate) oom_splits: u64,
    /// How many sequences were computed again in f32.
    pub(crate) in_f32: u64,
}

impl Batch {
    /// Whether a row of the batch is put together with others.
    pub(crate) fn is_window(&self, row: usize) -> bool {
        self.stitched && self.packed.span(row).is_window()
    }

    /// The rows of the batch that give a row of the output, or would if they had vectors.
    pub(crate) fn output_rows(&self) -> impl Iterator<Item = usize> {
        output_rows(&self.packed, self.stitched)
    }

    /// The key of the row of the output that a row of the batch gives: ordinal and start.
    pub(crate) fn key(&self, row: usize) -> (u64, u32) {
        let start = if self.stitched {
            0
        } else {
            self.packed.starts().value(row)
        };
        (self.packed.ordinals()[row], start)
    }

    /// The line of the rejects for a row of the batch.
    pub(crate) fn reject(&self, row: usize, reason: Reason) -> Reject {
        let (ordinal, start) = self.key(row);
        Reject {
            ordinal,
            id: self.packed.ids().value(row).to_owned(),
            length: u64::from(self.packed.lengths().value(row)),
            reason,
            start: Some(start),
        }
    }
}

/// The rows of a batch that give a row of the output: of windows that are `stitched`, the last.
pub(crate) fn output_rows(packed: &PackedBatch, stitched: bool) -> impl Iterator<Item = usize> {
    (0..packed.sequences()).filter(move |&row| {
        let span = packed.span(row);
        !stitched || !span.is_window() || span.is_last()
    })
}

fn no_rows() -> RecordBatch {
    RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty()))
}

impl BatchStats {
    /// Adds the times of a computation by a device.
    pub(crate) fn add_device_times(&mut self, times: Option<DeviceTimes>) {
        if let Some(times) = times {
            *self.device.get_or_insert_default() += times;
        }
    }
}
