//! Progress and outcome of a run.

use std::time::Duration;

use plmkit_contract::{Column, Widths};

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunProgress {
    Started {
        /// Tokens of all batches.
        tokens: u64,
        /// Of these, the tokens of batches that an earlier run saved.
        saved: u64,
    },
    /// Batches are computed.
    Advanced {
        /// The tokens of these batches.
        tokens: u64,
    },
    /// The computation is over.
    Ended,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The output is complete.
    Done(EmbedSummary),
    /// The output was complete before the run. It is verified and unchanged.
    AlreadyComplete {
        /// Rows of the output.
        rows: u64,
        /// Sequences that could not be embedded.
        rejected: u64,
    },
    /// The run was stopped. It published no output and saved the computed batches for the next run.
    Stopped {
        /// Saved batches.
        saved: u64,
        /// All batches.
        batches: u64,
    },
}

/// Figures of a completed run.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedSummary {
    /// Rows in the output: proteins, or their windows.
    pub rows: u64,
    /// Proteins that fasta-shard truncated.
    pub truncated: u64,
    /// Proteins, or windows, that could not be embedded.
    pub rejected: u64,
    /// Batches in the output.
    pub batches: u64,
    /// Batches that an earlier, interrupted run saved.
    pub saved_batches: u64,
    /// Sequences that this run computed again in f32, because their values were not finite in the model's type.
    pub in_f32: u64,
    /// Tokens computed by this run, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// How full the batches were and how long devices waited, with the tier or the state of each, as far as it is known.
    pub tiers: Vec<String>,
    pub columns: Vec<Column>,
    /// Values in their vectors.
    pub widths: Widths,
    /// Time from the first batch to the published file, without loading the model.
    pub elapsed: Duration,
}
