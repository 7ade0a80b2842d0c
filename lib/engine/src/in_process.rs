//! Computing batches with a model in this process.

use std::time::{Duration, Instant};

use plmkit_contract::{EmbeddingLayout, Scores, Stop};
use plmkit_esm2::{Esm2, ModelInfo, Ticket, WorkerGpu};

use crate::batch::{Batch, BatchResult, BatchStats};
use crate::embedder::Embedder;
use crate::parity::Parity;
use crate::pipeline::{BatchQueue, Compute, Deliver};
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
        deliver: &mut Deliver<'_>,
    ) -> Result<(), EngineError> {
        let is_masked = self.config.outputs.scores == Some(Scores::Masked);
        let sources = sources(&layout.columns, is_masked);
        let model = (&self.model, &self.config.injection);
        let mut embedder = Embedder::new(model, (layout, &sources), self.stop);
        // The batch that a GPU computes while the next one is started.
        let mut on_device: Option<InFlight> = None;
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
            let mut next = batch.map(|batch| InFlight {
                started: Instant::now(),
                ticket: match batch.saved {
                    None => embedder.submit(&batch),
                    Some(_) => None,
                },
                batch,
                wait,
                queue_depth: batches.len() as u64,
            });
            let begun = next
                .take_if(|next| matches!(&next.ticket, Some(Ok(ticket)) if ticket.is_pending()));
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
    batch: Batch,
    /// See [`BatchStats`].
    wait: Duration,
    queue_depth: u64,
    started: Instant,
    ticket: Option<Result<Ticket, EngineError>>,
}

impl InFlight {
    /// Waits for the device and computes the rest of the batch. Returns `None` after a requested stop.
    fn finish(
        mut self,
        embedder: &mut Embedder<'_>,
    ) -> Result<Option<(Batch, BatchResult)>, EngineError> {
        if let Some(saved) = self.batch.saved.take() {
            return Ok(Some((self.batch, saved)));
        }
        let Some(mut result) = embedder.embed(&self.batch, self.ticket)? else {
            return Ok(None);
        };
        result.stats = result.stats.map(|stats| BatchStats {
            wait: self.wait,
            queue_depth: self.queue_depth,
            // Another batch may have been computed meanwhile, so a device's own clock is better.
            compute: match stats.device {
                Some(times) => times.compute,
                None => self.started.elapsed(),
            },
            ..stats
        });
        Ok(Some((self.batch, result)))
    }
}
