//! Reader, computation and writer side by side.

use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use plmkit_contract::EmbeddingLayout;
use plmkit_esm2::{ModelInfo, WorkerGpu};
use plmkit_store::remove_file;

use crate::batch::Batch;
use crate::checkpoint::{Block, Blocks, RunFolder, damage, read_part};
use crate::event_log::EventLog;
use crate::inputs::RunInputs;
use crate::parity::Parity;
use crate::run::Work;
use crate::sample::ParitySample;
use crate::{EngineError, RunProgress};

/// The queue of batches to compute, or of the error that prevented reading one.
pub(crate) type BatchQueue = Receiver<Result<Batch, EngineError>>;

/// Computes the batches of a run, in this process or in workers.
pub(crate) trait Compute {
    /// The facts about the model.
    fn info(&self) -> &ModelInfo;

    /// The device of each worker process; `None` if this process computes.
    fn workers(&self) -> Option<Vec<WorkerGpu>>;

    /// Compares the int8 model with f32.
    fn measure_parity(&mut self, sample: ParitySample) -> Result<Parity, EngineError>;

    /// Computes batches until the queue ends, a stop is requested, or `deliver`, which passes a batch to the writer, returns false
    /// because the writer has ended. Batches keep their order.
    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &BatchQueue,
        deliver: &mut dyn FnMut(Batch) -> bool,
    ) -> Result<(), EngineError>;
}

/// Results that may wait for the writer: enough to close a row group while the next batch is computed.
const RESULTS_AHEAD: usize = 2;

/// Runs until all batches are written, a stop is requested or a stage fails. Reads rows from parts instead of computing them.
pub(crate) fn run(
    work: &Work<'_>,
    backend: &mut dyn Compute,
    (blocks, events): (&mut Blocks<'_>, &mut EventLog),
    report: &mut dyn FnMut(RunProgress),
) -> Result<(), EngineError> {
    let (folder, first, parts) = (blocks.folder, blocks.batches, blocks.parts.clone());
    run_stages(
        bounded(work.config.prefetch),
        |queue| read_batches(work.inputs, first, (folder, parts), queue),
        |batches, deliver| {
            backend.run(work.layout, batches, &mut |batch| {
                let tokens = batch.event.tokens;
                let delivered = deliver(batch);
                if delivered {
                    report(RunProgress::Advanced { tokens });
                }
                delivered
            })
        },
        |results| {
            for mut batch in results {
                let started = Instant::now();
                let event = std::mem::take(&mut batch.event);
                let saved = batch.saved;
                blocks.push(batch)?;
                if !saved {
                    events.write_batch(event, started.elapsed());
                }
            }
            Ok(blocks.end()?)
        },
    )
}

/// Runs `read` and `write` in threads of their own beside `compute`. `read` sends batches into `queue`, and its error at last, and
/// `write` receives the batches that `compute` delivers. Delivering fails after `write` has ended with an error.
pub(crate) fn run_stages(
    queue: (Sender<Result<Batch, EngineError>>, BatchQueue),
    read: impl FnOnce(&Sender<Result<Batch, EngineError>>) -> Result<(), EngineError> + Send,
    compute: impl FnOnce(&BatchQueue, &mut dyn FnMut(Batch) -> bool) -> Result<(), EngineError>,
    write: impl FnOnce(&Receiver<Batch>) -> Result<(), EngineError> + Send,
) -> Result<(), EngineError> {
    let (batches_in, batches) = queue;
    let (results_in, results) = bounded(RESULTS_AHEAD);
    thread::scope(|scope| {
        // First: without it, nothing would end a reader that waits for a run.
        let writer = thread::Builder::new()
            .name("writer".into())
            .spawn_scoped(scope, move || write(&results))
            .map_err(EngineError::not_started("thread"))?;
        thread::Builder::new()
            .name("reader".into())
            .spawn_scoped(scope, move || {
                if let Err(error) = read(&batches_in) {
                    // If the computation has ended, it reports its own error.
                    let _ = batches_in.send(Err(error));
                }
            })
            .map_err(EngineError::not_started("thread"))?;
        let computed = compute(&batches, &mut |batch| results_in.send(batch).is_ok());
        // The other threads end when their queues close.
        drop((batches, results_in));
        let written = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(computed)
    })
}

/// Sends the batches of `inputs` from position `first` on, until the receiver hangs up or a batch is unreadable. `parts` are in
/// ascending order and do not overlap.
fn read_batches(
    inputs: &RunInputs,
    first: u64,
    (folder, parts): (&RunFolder, Vec<Block>),
    queue: &Sender<Result<Batch, EngineError>>,
) -> Result<(), EngineError> {
    let mut batches = inputs.batches_where(|index| index >= first);
    let mut parts = parts.into_iter().peekable();
    while let Some(batch) = batches.next().transpose()? {
        let part = parts.next_if(|part| part.batches.start == batch.event.batch);
        let mut group = vec![batch];
        if let Some(part) = part {
            let others = (part.batches.end - part.batches.start - 1) as usize;
            for batch in batches.by_ref().take(others) {
                group.push(batch?);
            }
            let path = folder.part(part.batches.start);
            if let Err(error) = read_part(&path, &part, &mut group) {
                let error = damage(error)?;
                tracing::warn!("{error}; its batches are computed again");
                remove_file(&path)?;
            }
        }
        for batch in group {
            if queue.send(Ok(batch)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
