//! Reader, computation and writer side by side.

use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::EngineError;
use crate::journal::Timing;
use crate::pack::PackEmbedder;
use crate::part::Part;
use crate::plan::Plan;
use crate::reader::{Item, Received, read, receive};
use crate::run::Observer;
use crate::writer::{Finished, Results, Writer};

/// Results that may wait for the writer: enough for it to close a row group while the next pack is computed.
const RESULTS_AHEAD: usize = 2;

/// What the three stages of a run work with.
pub(crate) struct Pipeline<'a, 'w> {
    pub(crate) plan: &'a Plan,
    pub(crate) prefetch: usize,
    pub(crate) embedder: PackEmbedder<'a>,
    pub(crate) writer: &'w mut Writer<'a>,
}

impl Pipeline<'_, '_> {
    /// Runs until all packs are through, a stop is asked for or a stage fails. `parts` are not computed again.
    pub(crate) fn run(
        self,
        parts: Vec<Part>,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        let (packs_in, packs) = bounded(self.prefetch);
        let (results, results_out) = bounded(RESULTS_AHEAD);
        let (plan, writer) = (self.plan, self.writer);
        thread::scope(|scope| {
            thread::Builder::new()
                .name("reader".into())
                .spawn_scoped(scope, move || read(plan, parts, &packs_in))?;
            let writer = thread::Builder::new()
                .name("writer".into())
                .spawn_scoped(scope, move || {
                    writer.write(&results_out, plan.total.batches)
                })?;
            let computed = compute(self.embedder, &packs, &results, observer);
            // The other threads end when their queues do.
            drop((packs, results));
            let written = writer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(computed)
        })
    }
}

/// Computes pack after pack until there are no more, a stop is asked for, or the writer has gone.
fn compute<'a>(
    mut embedder: PackEmbedder<'_>,
    packs: &Receiver<Result<Item<'a>, EngineError>>,
    results: &Sender<Finished<'a>>,
    observer: &mut dyn Observer,
) -> Result<(), EngineError> {
    while !embedder.stop_requested()
        && let Some(Received {
            item: Item { job, saved },
            wait,
            queue_depth,
        }) = receive(packs)?
    {
        let started = Instant::now();
        let result = if let Some(saved) = saved {
            Results::Saved(saved)
        } else {
            let Some(computed) = embedder.embed(&job)? else {
                break;
            };
            let timing = Timing {
                wait,
                compute: started.elapsed(),
                queue_depth,
            };
            Results::Computed(computed, timing)
        };
        let tokens = job.pack.tokens().len() as u64;
        if results.send(Finished { job, result }).is_err() {
            // The writer ended early and says why.
            break;
        }
        observer.advanced(tokens);
    }
    Ok(())
}
