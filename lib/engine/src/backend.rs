//! Where batches are computed: in this process or in others.

use crossbeam_channel::Receiver;
use plmkit_contract::EmbeddingLayout;

use crate::EngineError;
use crate::batch::{Batch, BatchResult, QueuedBatch};
use crate::parity::Parity;
use crate::sample::Sample;

/// Computes the batches of a run.
pub(crate) trait Backend {
    /// The number of processes that compute; `None` where this one does.
    fn workers(&self) -> Option<u64>;

    /// Measures how near the model, which is in int8, comes to f32.
    fn measure(&mut self, sample: Sample) -> Result<Parity, EngineError>;

    /// Computes batch after batch until there are no more, a stop is requested, or `deliver` returns false. Results are delivered
    /// in the order of the batches.
    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &Receiver<Result<QueuedBatch, EngineError>>,
        deliver: &mut dyn FnMut(Batch, BatchResult) -> bool,
    ) -> Result<(), EngineError>;
}
