//! A batch of the run, and its result.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use plmkit_contract::{Reason, Reject};
use plmkit_esm2::DeviceTimes;
use plmkit_store::PackedBatch;
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// One batch and its place in the inputs. Messages between processes carry the sequences separately.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// Position among all batches of the run.
    pub(crate) index: u64,
    /// The batches file and the position in it, for messages.
    pub(crate) name: String,
    /// Whether this is the batch of the leftovers, which pack-batches could not fill.
    pub(crate) tail: bool,
    /// The token budget of the packing, if the file records it.
    pub(crate) token_budget: Option<u64>,
    /// The sequences.
    #[serde(skip)]
    pub(crate) packed: PackedBatch,
    /// The residues that are masked, each in a copy of the only sequence, and which copies are computed together.
    pub(crate) passes: Vec<Vec<usize>>,
    /// Whether the windows of a protein are stitched into one row.
    pub(crate) stitched: bool,
    /// Whether no protein continues in the next batch.
    pub(crate) at_boundary: bool,
    /// The result, where an earlier run saved it.
    #[serde(skip)]
    pub(crate) saved: Option<BatchResult>,
}

/// The rows of the output that come from a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BatchResult {
    /// The rows. Messages between processes carry them separately.
    #[serde(skip, default = "no_rows")]
    pub(crate) rows: RecordBatch,
    /// The rows of the output that have no vectors, in the order of the batch.
    pub(crate) rejected: Vec<Reject>,
    /// Statistics of the computation; `None` where an earlier run computed the rows.
    pub(crate) stats: Option<BatchStats>,
}

/// Statistics of the computation of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchStats {
    /// Time that the computation waited for the batch.
    pub(crate) wait: Duration,
    pub(crate) compute: Duration,
    /// Times by the clock of a device that has one.
    pub(crate) device: Option<DeviceTimes>,
    /// Batches in the queue behind this one.
    pub(crate) queue_depth: u64,
    /// The worker that computed the batch.
    pub(crate) worker: Option<u64>,
    /// How often sequences were split into two halves because memory ran out.
    pub(crate) oom_splits: u64,
    /// Sequences that were computed again in f32.
    pub(crate) in_f32: u64,
    /// Device memory that tensors held after the batch, and at most since the previous one, in MiB.
    pub(crate) memory_mib: Option<(u64, u64)>,
}

impl Batch {
    /// How often each token is computed: once, and in each masked copy.
    pub(crate) fn times(&self) -> usize {
        1 + self.passes.iter().map(Vec::len).sum::<usize>()
    }

    /// The most tokens that are computed together.
    pub(crate) fn most_tokens(&self) -> usize {
        let copies = self.passes.iter().map(Vec::len).max();
        self.packed.tokens().len() * copies.unwrap_or(1)
    }

    /// Whether a row is a window that is stitched together with others.
    pub(crate) fn is_window(&self, row: usize) -> bool {
        self.stitched && self.packed.span(row).is_window()
    }

    /// The rows of the batch that become rows of the output, rejected ones included.
    pub(crate) fn output_rows(&self) -> impl Iterator<Item = usize> {
        output_rows(&self.packed, self.stitched)
    }

    /// The key of the output row that comes from row `row` of the batch: ordinal and start.
    pub(crate) fn key(&self, row: usize) -> (u64, u32) {
        let start = self.packed.starts().value(row);
        let start = if self.stitched { 0 } else { start };
        (self.packed.ordinals()[row], start)
    }

    /// Makes the error of this batch.
    pub(crate) fn error(&self, what: impl Display) -> EngineError {
        EngineError::Batches(format!("{}: {what}", self.name))
    }

    /// The line of the rejects list for row `row`.
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

/// The rows of a batch that become rows of the output: if windows are `stitched`, only the last window of a protein.
pub(crate) fn output_rows(packed: &PackedBatch, stitched: bool) -> impl Iterator<Item = usize> {
    (0..packed.sequences()).filter(move |&row| {
        let span = packed.span(row);
        !stitched || !span.is_window() || span.is_last()
    })
}

fn no_rows() -> RecordBatch {
    RecordBatch::new_empty(Arc::new(Schema::empty()))
}

impl BatchStats {
    /// Adds device times.
    pub(crate) fn add_device_times(&mut self, times: Option<DeviceTimes>) {
        if let Some(times) = times {
            *self.device.get_or_insert_default() += times;
        }
    }
}
