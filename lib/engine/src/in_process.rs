//! Computing batches with a model in this process.

use std::time::Instant;

use plmkit_contract::{EmbeddingLayout, Scores, Stop};
use plmkit_esm2::{Esm2, ModelInfo, Ticket, WorkerGpu};
use plmkit_logs::event::milliseconds;

use crate::batch::Batch;
use crate::embedder::Embedder;
use crate::parity::Parity;
use crate::pipeline::{BatchQueue, Compute};
use crate::sample::ParitySample;
use crate::scores::sources;
use crate::{EngineError, RunConfig};

/// A loaded model with the options of its computation.
pub(crate) struct InProcess<'a> {
    model: Esm2,
    config: &'a RunConfig,
    stop: &'a Stop,
}

impl<'a> InProcess<'a> {
    /// Loads the model of `config`. `largest_batch` is the most sequences and the most tokens of a batch. Fails if the model cannot
    /// compute the outputs.
    pub(crate) fn load(
        config: &'a RunConfig,
        largest_batch: (usize, usize),
        stop: &'a Stop,
    ) -> Result<Self, EngineError> {
        let mut model = Esm2::load(&config.model, config.compute, stop)?;
        let columns = sources(&config.columns(model.info())?, false);
        model.info().heads_for(&config.model, &columns)?;
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
}

impl Compute for InProcess<'_> {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

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
        deliver: &mut dyn FnMut(Batch) -> bool,
    ) -> Result<(), EngineError> {
        let is_masked = self.config.outputs.scores == Some(Scores::Masked);
        let sources = sources(&layout.columns, is_masked);
        let model = (&self.model, &self.config.injection);
        let mut embedder = Embedder::new(model, (layout, &sources), self.stop);
        // The batch that a GPU computes while the next one is started, when it began, and what the model gave for it.
        let mut on_device: Option<(Batch, Instant, Option<Result<Ticket, EngineError>>)> = None;
        while !self.stop.requested() {
            let asked = Instant::now();
            let batch = match on_device {
                None => batches.recv().ok(),
                Some(_) => batches.try_recv().ok(),
            };
            let wait = asked.elapsed();
            let batch = batch.transpose()?;
            if batch.is_none() && on_device.is_none() {
                break;
            }
            let mut next = batch.map(|mut batch| {
                batch.event.wait_ms = Some(milliseconds(wait));
                batch.event.queue_depth = Some(batches.len() as u64);
                let begun = Instant::now();
                let ticket = if batch.saved {
                    None
                } else {
                    embedder.submit(&batch)
                };
                (batch, begun, ticket)
            });
            let started = next
                .take_if(|(.., ticket)| matches!(ticket, Some(Ok(ticket)) if ticket.is_pending()));
            for (mut batch, begun, ticket) in on_device.take().into_iter().chain(next) {
                let has_rows = batch.saved || embedder.embed(&mut batch, begun, ticket)?;
                if !(has_rows && deliver(batch)) {
                    return Ok(());
                }
            }
            on_device = started;
        }
        Ok(())
    }
}
