//! Reader, computation and writer side by side.

use std::mem;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use plmkit_contract::EmbeddingLayout;
use plmkit_logs::event::{BatchDone, milliseconds};
use plmkit_store::{StoreError, remove_file};

use crate::batch::{Batch, ComputedBatch};
use crate::checkpoint::{OutputBlock, OutputBlocks, RunFolder, damage, read_part};
use crate::crash_marks::CrashMarks;
use crate::embedder::{Embedder, StartedBatch};
use crate::error::EngineError;
use crate::event_log::EventLog;
use crate::outcome::RunProgress;
use crate::work::Work;

/// Results that may wait for the writer: enough to close a row group while the next batch is computed.
const RESULTS_AHEAD: usize = 2;

/// Runs until all batches are written, a stop is requested or a stage fails. Reads rows from parts instead of computing them.
pub(crate) fn run(
    work: &Work<'_>,
    embedder: &mut Embedder<'_>,
    blocks: &mut OutputBlocks<'_>,
    events: &mut EventLog,
    report: &mut dyn FnMut(RunProgress),
) -> Result<(), EngineError> {
    let (folder, first, parts) = (blocks.folder, blocks.batches, blocks.parts.clone());
    let crashes = CrashMarks::start(&folder.crashes(), &work.provenance);
    let crashes = crashes.map_err(StoreError::cannot_read(&folder.crashes()))?;
    let given_up = &crashes.given_up;
    let (batches_in, batches) = bounded(work.config.prefetch);
    let (results_in, results) = bounded(RESULTS_AHEAD);
    thread::scope(|scope| {
        // First: without it, nothing would end a reader that waits for a run.
        let writer = thread::Builder::new()
            .name("writer".into())
            .spawn_scoped(scope, move || write(results, blocks, events))
            .map_err(EngineError::no_thread)?;
        thread::Builder::new()
            .name("reader".into())
            .spawn_scoped(scope, move || {
                if let Err(error) = read_batches(work, folder, first, parts, given_up, &batches_in)
                {
                    // If the computation has ended, it reports its own error.
                    let _ = batches_in.send(Err(error));
                }
            })
            .map_err(EngineError::no_thread)?;
        let computed = compute(embedder, work.layout, &batches, |batch| {
            let tokens = batch.event.tokens;
            let delivered = results_in.send(batch).is_ok();
            if delivered {
                report(RunProgress::Advanced { tokens });
            }
            delivered
        });
        // The other threads end when their queues close.
        drop((batches, results_in));
        let written = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(computed)
    })
}

/// A batch that the reader passes on.
enum ReadBatch {
    ToCompute(Batch),
    /// Its rows are in a part, or it is given up.
    Computed(ComputedBatch),
}

/// Computes batches until the queue ends, a stop is requested, or `deliver`, which passes a batch to the writer, returns false
/// because the writer has ended. Batches keep their order.
fn compute(
    embedder: &mut Embedder<'_>,
    layout: &EmbeddingLayout,
    batches: &Receiver<Result<ReadBatch, EngineError>>,
    mut deliver: impl FnMut(ComputedBatch) -> bool,
) -> Result<(), EngineError> {
    // The batch that a GPU computes while the next one is started.
    let mut on_device: Option<StartedBatch> = None;
    while !embedder.stop.requested() {
        let asked = Instant::now();
        let batch = match on_device {
            None => batches.recv().ok(),
            Some(_) => batches.try_recv().ok(),
        };
        let wait = asked.elapsed();
        let note_wait = |event: &mut BatchDone| {
            event.wait_ms = Some(milliseconds(wait));
            event.queue_depth = Some(batches.len() as u64);
        };
        let (mut started, mut computed) = (None, None);
        match batch.transpose()? {
            None if on_device.is_none() => break,
            None => {}
            Some(ReadBatch::Computed(mut batch)) => {
                note_wait(&mut batch.event);
                computed = Some(batch);
            }
            Some(ReadBatch::ToCompute(mut batch)) => {
                note_wait(&mut batch.event);
                started = Some(embedder.start(batch));
            }
        }
        let next_on_device = started.take_if(|started| started.is_on_device());
        for batch in on_device.take().into_iter().chain(started) {
            let finished = embedder.finish(batch, layout)?;
            if !finished.is_some_and(&mut deliver) {
                return Ok(());
            }
        }
        if !computed.is_none_or(&mut deliver) {
            return Ok(());
        }
        on_device = next_on_device;
    }
    Ok(())
}

/// Writes the batches that the computation delivers.
fn write(
    results: Receiver<ComputedBatch>,
    blocks: &mut OutputBlocks<'_>,
    events: &mut EventLog,
) -> Result<(), EngineError> {
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
}

/// Sends the batches of the run from position `first` on, until the receiver hangs up or a batch is unreadable. `parts` are in
/// ascending order and do not overlap. A batch is given up together with those that have windows of its proteins.
fn read_batches(
    work: &Work<'_>,
    folder: &RunFolder,
    first: u64,
    parts: Vec<OutputBlock>,
    given_up: &[u64],
    queue: &Sender<Result<ReadBatch, EngineError>>,
) -> Result<(), EngineError> {
    let mut batches = work.inputs.batches_where(|index| index >= first);
    let mut parts = parts.into_iter().peekable();
    while let Some(batch) = batches.next().transpose()? {
        let part = parts.next_if(|part| part.batches.start == batch.event.batch);
        let mut group = vec![batch];
        let mut saved = None;
        if let Some(part) = part {
            let others = (part.batches.end - part.batches.start - 1) as usize;
            for batch in batches.by_ref().take(others) {
                group.push(batch?);
            }
            let path = folder.part(part.batches.start);
            match read_part(&path) {
                Ok(rows) => saved = Some((rows, part.rejected)),
                Err(error) => {
                    let error = damage(error)?;
                    tracing::warn!("{error}; its batches are computed again");
                    remove_file(&path)?;
                }
            }
        }
        while saved.is_none()
            && !given_up.is_empty()
            && !group[group.len() - 1].at_boundary
            && let Some(batch) = batches.next()
        {
            group.push(batch?);
        }
        let is_given_up = |batch: &Batch| given_up.contains(&batch.event.batch);
        let are_given_up = group.iter().any(is_given_up);
        for batch in group {
            let batch = match &mut saved {
                // All rows of a part go with its first batch: those of a block are sorted before they are written.
                Some((rows, rejected)) => {
                    ReadBatch::Computed(batch.into_saved(mem::take(rows), mem::take(rejected)))
                }
                None if are_given_up => ReadBatch::Computed(batch.give_up()),
                None => ReadBatch::ToCompute(batch),
            };
            if queue.send(Ok(batch)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
