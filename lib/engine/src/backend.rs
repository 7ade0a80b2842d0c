//! Where batches are computed: in this process or in others.

use crossbeam_channel::Receiver;
use plmkit_contract::{EmbeddingLayout, Stop};
use plmkit_esm2::{Device, EsmError, WorkerGpu, set_threads};

use crate::batch::{Batch, BatchResult, QueuedBatch};
use crate::in_process::InProcess;
use crate::inputs::RunInputs;
use crate::model_info::ModelInfo;
use crate::parity::Parity;
use crate::sample::Sample;
use crate::workers::WorkerPool;
use crate::{EngineError, RunConfig};

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

/// Loads the model for the batches of `inputs`.
pub(crate) fn start<'a>(
    config: &'a RunConfig,
    inputs: &RunInputs,
    stop: &'a Stop,
) -> Result<(Box<dyn Backend + 'a>, ModelInfo), EngineError> {
    let devices = match (config.device, config.workers) {
        (Device::All, _) => Device::each_gpu().map_err(EsmError::from)?,
        (device, Some(count)) => vec![
            WorkerGpu {
                device,
                visible: None
            };
            count.get()
        ],
        (_, None) => {
            set_threads(config.threads);
            let model = InProcess::load(config, inputs.largest_batch(), stop)?;
            let info = model.info()?;
            return Ok((Box::new(model), info));
        }
    };
    let (pool, info) = WorkerPool::start(config, devices, inputs, stop)?;
    Ok((Box::new(pool), info))
}
