//! Computing batches with a model in this process.

use std::time::Instant;

use plmkit_contract::EmbeddingLayout;
use plmkit_esm2::{ModelInfo, WorkerGpu};
use plmkit_logs::event::milliseconds;

use crate::EngineError;
use crate::batch::Batch;
use crate::embedder::Embedder;
use crate::parity::Parity;
use crate::pipeline::{BatchQueue, Compute};
use crate::sample::ParitySample;

impl Compute for Embedder<'_> {
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
        // The batch that a GPU computes while the next one is started, when it began, and what the model gave for it.
        let mut on_device = None;
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
                let ticket = (!batch.saved).then(|| self.submit(&batch)).flatten();
                (batch, begun, ticket)
            });
            let started = next
                .take_if(|(.., ticket)| matches!(ticket, Some(Ok(ticket)) if ticket.is_pending()));
            for (mut batch, begun, ticket) in on_device.take().into_iter().chain(next) {
                let has_rows = batch.saved || self.embed(&mut batch, layout, (begun, ticket))?;
                if !(has_rows && deliver(batch)) {
                    return Ok(());
                }
            }
            on_device = started;
        }
        Ok(())
    }
}
