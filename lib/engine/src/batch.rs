//! A batch of the run: before it is computed, and with its rows of the output.

use arrow_array::RecordBatch;
use plmkit_contract::{Reason, Reject};
use plmkit_logs::event::BatchDone;
use plmkit_store::PackedBatch;

/// A batch to compute.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The batches file and the position in it, for messages.
    pub(crate) name: String,
    pub(crate) packed: PackedBatch,
    /// The residues that are masked, each in a copy of the only sequence, and which copies are computed together.
    pub(crate) passes: Vec<Vec<usize>>,
    /// Whether the windows of a protein are stitched into one row.
    pub(crate) stitched: bool,
    /// Whether no protein continues in the next batch.
    pub(crate) at_boundary: bool,
    /// What the run events tell of it.
    pub(crate) event: BatchDone,
}

/// A batch with its rows: computed, read from a part, or given up.
#[derive(Debug)]
pub(crate) struct ComputedBatch {
    /// Whether no protein continues in the next batch.
    pub(crate) at_boundary: bool,
    /// The rows of the output.
    pub(crate) rows: Vec<RecordBatch>,
    /// The rows of the output that have no vectors, in the order of the batch.
    pub(crate) rejected: Vec<Reject>,
    /// Whether the rows are in a part.
    pub(crate) saved: bool,
    /// What the run events tell of it.
    pub(crate) event: BatchDone,
}

impl Batch {
    /// Makes a batch to compute. The copies of one sequence fill what they fill, so that a batch of them has no token budget.
    pub(crate) fn new(
        name: String,
        packed: PackedBatch,
        passes: Vec<Vec<usize>>,
        token_budget: Option<u64>,
    ) -> Self {
        let times = 1 + passes.iter().map(Vec::len).sum::<usize>() as u64;
        let sequences = packed.sequences() as u64 * times;
        let tokens = packed.tokens().len() as u64 * times;
        let ends = packed.cu_seqlens().windows(2);
        let lengths = ends.map(|ends| u64::from(ends[1].abs_diff(ends[0])));
        let event = BatchDone {
            sequences,
            tokens,
            // Without <cls> and <eos>.
            residues: tokens - 2 * sequences,
            longest: lengths.clone().max(),
            pairs: Some(lengths.map(|length| length * length * times).sum()),
            token_budget,
            ..BatchDone::default()
        };
        Self {
            name,
            packed,
            passes,
            stitched: false,
            at_boundary: false,
            event,
        }
    }

    /// The most sequences, and the most tokens, that are computed together.
    pub(crate) fn largest(&self) -> (usize, usize) {
        let copies = self.passes.iter().map(Vec::len).max().unwrap_or(1);
        let (sequences, tokens) = (self.packed.sequences(), self.packed.tokens().len());
        (sequences * copies, tokens * copies)
    }

    /// Whether a row is a window that is stitched together with others.
    pub(crate) fn is_window(&self, row: usize) -> bool {
        self.stitched && self.packed.span(row).is_window()
    }

    /// The rows of the batch that become rows of the output, rejected ones included: of a stitched protein, the last window.
    pub(crate) fn output_rows(&self) -> impl Iterator<Item = usize> {
        (0..self.packed.sequences())
            .filter(|&row| !self.is_window(row) || self.packed.span(row).is_last())
    }

    /// The key of the output row that comes from row `row` of the batch: ordinal and start.
    pub(crate) fn key(&self, row: usize) -> (u64, u32) {
        let start = self.packed.starts().value(row);
        let start = if self.stitched { 0 } else { start };
        (self.packed.ordinals()[row], start)
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

    /// Gives up the batch: all its rows are rejected.
    pub(crate) fn give_up(self) -> ComputedBatch {
        tracing::warn!(
            "{}: two runs crashed while they computed it; its sequences are listed as rejected",
            self.name
        );
        let rows = self.output_rows();
        let rejected = rows.map(|row| self.reject(row, Reason::WorkerLost));
        let rejected = rejected.collect();
        self.into_computed(Vec::new(), rejected)
    }

    /// Returns the batch with these rows of a part.
    pub(crate) fn into_saved(self, rows: Vec<RecordBatch>, rejected: Vec<Reject>) -> ComputedBatch {
        ComputedBatch {
            saved: true,
            ..self.into_computed(rows, rejected)
        }
    }

    /// Returns the batch with its rows of the output, and those without vectors.
    pub(crate) fn into_computed(
        self,
        rows: Vec<RecordBatch>,
        rejected: Vec<Reject>,
    ) -> ComputedBatch {
        let mut event = self.event;
        event.rejected = rejected.len() as u64;
        ComputedBatch {
            at_boundary: self.at_boundary,
            rows,
            rejected,
            saved: false,
            event,
        }
    }
}
