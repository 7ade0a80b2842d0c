//! Reader, computation and writer side by side.

use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use plmkit_contract::EmbeddingLayout;
use plmkit_logs::event::milliseconds;
use plmkit_store::{StoreError, remove_file};

use crate::batch::Batch;
use crate::checkpoint::{Block, Blocks, RunFolder, damage, read_part};
use crate::crash_marks::CrashMarks;
use crate::embedder::Embedder;
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
    (blocks, events): (&mut Blocks<'_>, &mut EventLog),
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
                if let Err(error) =
                    read_batches(work, first, (folder, parts, given_up), &batches_in)
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

/// Computes batches until the queue ends, a stop is requested, or `deliver`, which passes a batch to the writer, returns false
/// because the writer has ended. Batches keep their order.
fn compute(
    embedder: &mut Embedder<'_>,
    layout: &EmbeddingLayout,
    batches: &Receiver<Result<Batch, EngineError>>,
    mut deliver: impl FnMut(Batch) -> bool,
) -> Result<(), EngineError> {
    // The batch that a GPU computes while the next one is started, when it began, and what the model gave for it.
    let mut on_device = None;
    while !embedder.stop.requested() {
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
            let ticket = batch
                .rows
                .is_empty()
                .then(|| embedder.submit(&batch))
                .flatten();
            (batch, begun, ticket)
        });
        let started =
            next.take_if(|(.., ticket)| matches!(ticket, Some(Ok(ticket)) if ticket.is_pending()));
        for (mut batch, begun, ticket) in on_device.take().into_iter().chain(next) {
            let has_rows =
                !batch.rows.is_empty() || embedder.embed(&mut batch, layout, (begun, ticket))?;
            if !(has_rows && deliver(batch)) {
                return Ok(());
            }
        }
        on_device = started;
    }
    Ok(())
}

/// Writes the batches that the computation delivers.
fn write(
    results: Receiver<Batch>,
    blocks: &mut Blocks<'_>,
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
    first: u64,
    (folder, parts, given_up): (&RunFolder, Vec<Block>, &[u64]),
    queue: &Sender<Result<Batch, EngineError>>,
) -> Result<(), EngineError> {
    let mut batches = work.inputs.batches_where(|index| index >= first);
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
        while !given_up.is_empty()
            && !group[group.len() - 1].at_boundary
            && let Some(batch) = batches.next()
        {
            group.push(batch?);
        }
        let is_given_up = |batch: &Batch| given_up.contains(&batch.event.batch);
        if group.iter().any(is_given_up) {
            let batches = group.iter_mut().filter(|batch| batch.rows.is_empty());
            batches.for_each(|batch| batch.give_up(work.layout.schema()));
        }
        for batch in group {
            if queue.send(Ok(batch)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
