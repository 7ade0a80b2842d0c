//! What a run reports while it goes on, and at its end.

use std::time::Duration;

use plmkit_contract::Column;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The run starts.
    Started {
        /// All tokens of its batches.
        tokens: u64,
    },
    /// More is computed, or was saved by an earlier run.
    Advanced {
        /// The tokens of that.
        tokens: u64,
    },
    /// No more will be computed.
    Ended,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The output is complete.
    Done(RunSummary),
    /// The output was complete before: verified, and left as it was.
    AlreadyComplete {
        /// Its rows.
        rows: u64,
        /// Sequences that could not be embedded.
        rejected: u64,
    },
    /// A stop was asked for. Nothing is at the output's path; what was computed is saved for the next run.
    Stopped {
        /// Batches that are saved.
        saved: u64,
        /// All batches.
        batches: u64,
    },
}

/// What a completed run did.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Rows in the output: proteins, or their windows.
    pub rows: u64,
    /// Proteins of the input of which residues were cut off before.
    pub truncated: u64,
    /// Proteins, or windows, that could not be embedded.
    pub rejected: u64,
    /// Batches in the output.
    pub batches: u64,
    /// Of these, the ones that an earlier, interrupted run had saved.
    pub saved_batches: u64,
    /// Sequences that this run computed again in f32, since their values were not finite in the type of the model.
    pub in_f32: u64,
    /// Tokens computed by this run, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// The columns written.
    pub columns: Vec<Column>,
    /// Values in a vector.
    pub dim: usize,
    /// Time from the first batch to the published file; loading the model is not in it.
    pub elapsed: Duration,
}
