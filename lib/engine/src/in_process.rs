//! Computing batches with a model in this process.

use std::time::Instant;

use plmkit_contract::{EmbeddingLayout, Stop};
use plmkit_esm2::{Esm2, EsmError, PendingOutput, WorkerGpu};

use crate::batch::{Batch, BatchResult, BatchStats, QueuedBatch};
use crate::batch_embedder::BatchEmbedder;
use crate::compute::Embedder;
use crate::model_info::ModelInfo;
use crate::parity::Parity;
use crate::pipeline::{Backend, BatchQueue, Deliver};
use crate::sample::ParitySample;
use crate::token_limit::TokenLimit;
use crate::{EngineError, RunConfig};

/// A loaded model with the options of its computation.
pub(crate) struct InProcess<'a> {
    model: Esm2,
    config: &'a RunConfig,
    stop: &'a Stop,
}

impl<'a> InProcess<'a> {
    /// Loads the model of `config`. `largest_batch` is the most sequences and the most tokens of a batch.
    pub(crate) fn load(
        config: &'a RunConfig,
        largest_batch: (usize, usize),
        stop: &'a Stop,
    ) -> Result<Self, EngineError> {
        let mut model = Esm2::load(&config.model, config.compute_options(), stop)?;
        let columns = config.outputs.columns(model.config().layers);
        let columns = columns.map_err(EsmError::from)?;
        // If that much memory is refused, batches are split later.
        if let Err(error) = model.reserve(largest_batch, &columns) {
            tracing::debug!("{error}");
        }
        Ok(Self {
            model,
            config,
            stop,
        })
    }

    pub(crate) fn info(&self) -> Result<ModelInfo, EsmError> {
        ModelInfo::new(&self.model, &self.config.outputs)
    }
}

impl Backend for InProcess<'_> {
    fn workers(&self) -> Option<Vec<WorkerGpu>> {
        None
    }

    fn measure_parity(&mut self, sample: ParitySample) -> Result<Parity, EngineError> {
        Ok(sample.measure(&self.model, self.stop)?)
    }

    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &BatchQueue,
        deliver: &mut Deliver<'_>,
    ) -> Result<(), EngineError> {
        let embedder = Embedder {
            model: &self.model,
            stop: self.stop,
            injection: &self.config.injection,
            limit: TokenLimit::default(),
        };
        let mut embedder = BatchEmbedder::new(embedder, layout);
        // The batch that a GPU computes while the next one is started.
        let mut on_device: Option<InFlight> = None;
        while !self.stop.requested() {
            let asked = Instant::now();
            let queued = match on_device {
                None => batches.recv().ok(),
                Some(_) => batches.try_recv().ok(),
            };
            let stats = BatchStats {
                wait: asked.elapsed(),
                queue_depth: batches.len() as u64,
                ..BatchStats::default()
            };
            let queued = queued.transpose()?;
            if queued.is_none() && on_device.is_none() {
                break;
            }
            let mut next = queued.map(|queued| InFlight::begin(&embedder, queued, &stats));
            let begun = next.take_if(|next| next.is_on_device());
            for in_flight in on_device.take().into_iter().chain(next) {
                let finished = in_flight.finish(&mut embedder)?;
                if !finished.is_some_and(|(batch, result)| deliver(batch, result)) {
                    return Ok(());
                }
            }
            on_device = begun;
        }
        Ok(())
    }
}

/// A batch whose computation has begun.
struct InFlight {
    queued: QueuedBatch,
    stats: BatchStats,
    started: Instant,
    pending: Option<Result<PendingOutput, EngineError>>,
}

impl InFlight {
    fn begin(embedder: &BatchEmbedder<'_>, queued: QueuedBatch, stats: &BatchStats) -> Self {
        let started = Instant::now();
        Self {
            pending: match queued.saved {
                None => embedder.begin(&queued.batch),
                Some(_) => None,
            },
            queued,
            stats: *stats,
            started,
        }
    }

    /// Whether a device is still computing the batch.
    fn is_on_device(&self) -> bool {
        matches!(&self.pending, Some(Ok(pending)) if !pending.is_computed())
    }

    /// Waits for the device and computes the rest of the batch. Returns `None` after a requested stop.
    fn finish(
        self,
        embedder: &mut BatchEmbedder<'_>,
    ) -> Result<Option<(Batch, BatchResult)>, EngineError> {
        let QueuedBatch { batch, saved } = self.queued;
        if let Some(saved) = saved {
            return Ok(Some((batch, saved)));
        }
        let output = self.pending.map(|pending| Ok(pending?.finish()?));
        let Some(mut result) = embedder.embed(&batch, output)? else {
            return Ok(None);
        };
        if let Some(stats) = &mut result.stats {
            (stats.wait, stats.queue_depth) = (self.stats.wait, self.stats.queue_depth);
            // Another batch may have been computed meanwhile, so a device's own clock is better.
            stats.compute = match stats.device {
                Some(times) => times.compute,
                None => self.started.elapsed(),
            };
        }
        Ok(Some((batch, result)))
    }
}
