//! Reader, computation and writer side by side.

use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::backend::Backend;
use crate::batch::{Batch, BatchResult, QueuedBatch};
use crate::checkpoint::{Part, remove_file};
use crate::inputs::RunInputs;
use crate::writer::Writer;
use crate::{EngineError, Progress};

/// A batch to compute, or why there is none.
pub(crate) type QueueItem = Result<QueuedBatch, EngineError>;

/// Results that may wait for the writer: enough for it to close a row group while the next batch is computed.
const RESULTS_AHEAD: usize = 2;

/// Runs until all batches are through, a stop is requested or a stage fails. Of the batches of `parts` the results are read
/// and not computed.
pub(crate) fn run(
    (inputs, parts): (&RunInputs, Vec<Part>),
    prefetch: usize,
    backend: &mut dyn Backend,
    writer: &mut Writer<'_>,
    report: &mut dyn FnMut(Progress),
) -> Result<(), EngineError> {
    let (layout, first) = (writer.layout, writer.batches);
    run_stages(
        bounded(prefetch),
        |queue| {
            if let Err(error) = read_batches(inputs, first, parts, queue) {
                // The computation may have ended before, and then it says why.
                let _ = queue.send(Err(error));
            }
        },
        |batches, deliver| {
            backend.run(layout, batches, &mut |batch, result| {
                let tokens = batch.packed.tokens().len() as u64;
                let delivered = deliver(batch, result);
                if delivered {
                    report(Progress::Advanced { tokens });
                }
                delivered
            })
        },
        |results| writer.write(results, inputs.total.batches),
    )
}

/// Runs `read` and `write` in threads of their own beside `compute`: the first sends batches into `queue`, the last takes the
/// results that `compute` delivers. Delivering fails where `write` has ended, which says why.
pub(crate) fn run_stages(
    queue: (Sender<QueueItem>, Receiver<QueueItem>),
    read: impl FnOnce(&Sender<QueueItem>) + Send,
    compute: impl FnOnce(
        &Receiver<QueueItem>,
        &mut dyn FnMut(Batch, BatchResult) -> bool,
    ) -> Result<(), EngineError>,
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
        // The other threads end when their queues do.
        drop((batches, results_in));
        let written = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(computed)
    })
}

/// Sends every batch of `inputs` from the position `first` on until the other side hangs up or a batch is unreadable. `parts`
/// rise and are apart.
fn read_batches(
    inputs: &RunInputs,
    first: u64,
    parts: Vec<Part>,
    queue: &Sender<QueueItem>,
) -> Result<(), EngineError> {
    let mut batches = inputs.batches_where(|index| index >= first);
    let mut parts = parts.into_iter().peekable();
    while let Some(batch) = batches.next().transpose()? {
        let part = parts.next_if(|part| part.batches.start == batch.index);
        let mut group = vec![batch];
        let mut saved = Vec::new();
        if let Some(part) = part {
            let more = (part.batches.end - part.batches.start - 1) as usize;
            for batch in batches.by_ref().take(more) {
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
        for batch in group {
            let saved = saved.next();
            if queue.send(Ok(QueuedBatch { batch, saved })).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
