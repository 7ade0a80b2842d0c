//! Batches computed by a model in this process.

use std::time::Instant;

use crossbeam_channel::Receiver;
use plmkit_contract::{EmbeddingLayout, Stop};
use plmkit_esm2::{Esm2, EsmError, PendingOutput};

use crate::backend::Backend;
use crate::batch::{Batch, BatchResult, BatchStats, QueuedBatch};
use crate::batch_embedder::BatchEmbedder;
use crate::compute::Embedder;
use crate::model_info::ModelInfo;
use crate::parity::Parity;
use crate::sample::Sample;
use crate::token_limit::TokenLimit;
use crate::{EngineError, RunConfig};

/// A loaded model, and how it is to compute.
pub(crate) struct InProcess<'a> {
    model: Esm2,
    config: &'a RunConfig,
    stop: &'a Stop,
}

impl<'a> InProcess<'a> {
    /// Loads the model of `config`, for batches of up to so many sequences and tokens.
    pub(crate) fn load(
        config: &'a RunConfig,
        largest_batch: (usize, usize),
        stop: &'a Stop,
    ) -> Result<Self, EngineError> {
        let mut model = Esm2::load(&config.model, config.setup(), stop)?;
        let columns = config.outputs.columns(model.config().layers)?;
        // Where that does not fit, batches are halved.
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
    fn workers(&self) -> Option<u64> {
        None
    }

    fn measure(&mut self, sample: Sample) -> Result<Parity, EngineError> {
        Ok(sample.measure(&self.model, self.stop)?)
    }

    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &Receiver<Result<QueuedBatch, EngineError>>,
        deliver: &mut dyn FnMut(Batch, BatchResult) -> bool,
    ) -> Result<(), EngineError> {
        let embedder = Embedder {
            model: &self.model,
            stop: self.stop,
            injection: &self.config.injection,
            limit: TokenLimit::default(),
        };
        let mut embedder = BatchEmbedder::new(embedder, layout);
        // The batch that a GPU computes while the next one is begun.
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
            let mut next = queued.map(|queued| InFlight::begin(&embedder, queued, stats));
            let begun = next.take_if(|next| next.is_on_device());
            for in_flight in on_device.take().into_iter().chain(next) {
                let Some((batch, result)) = in_flight.finish(&mut embedder)? else {
                    return Ok(());
                };
                if !deliver(batch, result) {
                    return Ok(());
                }
            }
            on_device = begun;
        }
        Ok(())
    }
}

/// A batch whose computation was begun.
struct InFlight {
    queued: QueuedBatch,
    stats: BatchStats,
    started: Instant,
    pending: Option<Result<PendingOutput, EngineError>>,
}

impl InFlight {
    fn begin(embedder: &BatchEmbedder<'_>, queued: QueuedBatch, stats: BatchStats) -> Self {
        let started = Instant::now();
        Self {
            pending: match queued.saved {
                None => embedder.begin(&queued.batch),
                Some(_) => None,
            },
            queued,
            stats,
            started,
        }
    }

    /// Whether a device is at work on it, so that there is something else to do.
    fn is_on_device(&self) -> bool {
        matches!(&self.pending, Some(Ok(pending)) if !pending.is_computed())
    }

    /// Waits for the device, and computes what was not begun; `None` once a stop was requested.
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
        result.stats = result.stats.map(|stats| BatchStats {
            wait: self.stats.wait,
            queue_depth: self.stats.queue_depth,
            // A device that works while the program goes on has a clock of its own.
            compute: match stats.device {
                Some(times) => times.compute,
                None => self.started.elapsed(),
            },
            ..stats
        });
        Ok(Some((batch, result)))
    }
}
