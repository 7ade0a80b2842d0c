//! Reader, computation and writer side by side.

use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use plmkit_contract::EmbeddingLayout;
use plmkit_esm2::{ModelInfo, WorkerGpu};
use plmkit_store::remove_file;

use crate::batch::{Batch, BatchResult};
use crate::checkpoint::Part;
use crate::inputs::RunInputs;
use crate::parity::Parity;
use crate::run::Work;
use crate::sample::ParitySample;
use crate::writer::Writer;
use crate::{EngineError, RunProgress};

/// A batch to compute, or the error that prevented reading it.
pub(crate) type QueueItem = Result<Batch, EngineError>;
/// The queue of batches to compute.
pub(crate) type BatchQueue = Receiver<QueueItem>;
/// Passes a result to the writer. Returns false if the writer has ended.
pub(crate) type Deliver<'a> = dyn FnMut(Batch, BatchResult) -> bool + 'a;

/// Computes the batches of a run, in this process or in workers.
pub(crate) trait Compute {
    /// The facts about the model.
    fn info(&self) -> &ModelInfo;

    /// The device of each worker process; `None` if this process computes.
    fn workers(&self) -> Option<Vec<WorkerGpu>>;

    /// Compares the int8 model with f32.
    fn measure_parity(&mut self, sample: ParitySample) -> Result<Parity, EngineError>;

    /// Computes batches until the queue ends, a stop is requested, or `deliver` returns false. Delivers results in the order of
    /// the batches.
    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &BatchQueue,
        deliver: &mut Deliver<'_>,
    ) -> Result<(), EngineError>;
}

/// Results that may wait for the writer: enough to close a row group while the next batch is computed.
const RESULTS_AHEAD: usize = 2;

/// Runs until all batches are written, a stop is requested or a stage fails. Reads the results of `parts` instead of computing
/// them.
pub(crate) fn run(
    work: &Work<'_>,
    parts: Vec<Part>,
    backend: &mut dyn Compute,
    writer: &mut Writer<'_>,
    report: &mut dyn FnMut(RunProgress),
) -> Result<(), EngineError> {
    let (inputs, first) = (work.inputs, writer.batches);
    run_stages(
        bounded(work.config.prefetch),
        |queue| {
            if let Err(error) = read_batches(inputs, first, parts, queue) {
                // If the computation has ended, it reports its own error.
                let _ = queue.send(Err(error));
            }
        },
        |batches, deliver| {
            backend.run(work.layout, batches, &mut |batch, result| {
                let tokens = (batch.packed.tokens().len() * batch.times()) as u64;
                let delivered = deliver(batch, result);
                if delivered {
                    report(RunProgress::Advanced { tokens });
                }
                delivered
            })
        },
        |results| writer.write(results, inputs.total.batches),
    )
}

/// Runs `read` and `write` in threads of their own beside `compute`. `read` sends batches into `queue`, and `write` receives the
/// results that `compute` delivers. Delivering fails after `write` has ended with an error.
pub(crate) fn run_stages(
    queue: (Sender<QueueItem>, BatchQueue),
    read: impl FnOnce(&Sender<QueueItem>) + Send,
    compute: impl FnOnce(&BatchQueue, &mut Deliver<'_>) -> Result<(), EngineError>,
    write: impl FnOnce(&Receiver<(Batch, BatchResult)>) -> Result<(), EngineError> + Send,
) -> Result<(), EngineError> {
    let (batches_in, batches) = queue;
    let (results_in, results) = bounded(RESULTS_AHEAD);
    thread::scope(|scope| {
        thread::Builder::new()
            .name("reader".into())
            .spawn_scoped(scope, move || read(&batches_in))?;
        let writer = thread::Builder::new()
            .name("writer".into())
            .spawn_scoped(scope, move || write(&results))?;
        let computed = compute(&batches, &mut |batch, result| {
            results_in.send((batch, result)).is_ok()
        });
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
    parts: Vec<Part>,
    queue: &Sender<QueueItem>,
) -> Result<(), EngineError> {
    let mut batches = inputs.batches_where(|index| index >= first);
    let mut parts = parts.into_iter().peekable();
    while let Some(batch) = batches.next().transpose()? {
        let part = parts.next_if(|part| part.block.batches.start == batch.index);
        let mut group = vec![batch];
        let mut saved = Vec::new();
        if let Some(part) = part {
            let others = (part.block.batches.end - part.block.batches.start - 1) as usize;
            for batch in batches.by_ref().take(others) {
                group.push(batch?);
            }
            match part.read(&group) {
                Ok(results) => saved = results,
                Err(error) => {
                    tracing::warn!("{error}; its batches are computed again");
                    remove_file(&part.path)?;
                }
            }
        }
        let mut saved = saved.into_iter();
        for mut batch in group {
            batch.saved = saved.next();
            if queue.send(Ok(batch)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
