//! Reader, computation and writer side by side.

use std::thread;

use crossbeam_channel::bounded;

use crate::EngineError;
use crate::backend::Backend;
use crate::part::Part;
use crate::plan::Plan;
use crate::reader::read;
use crate::run::Observer;
use crate::writer::Writer;

/// Results that may wait for the writer: enough for it to close a row group while the next pack is computed.
pub(crate) const RESULTS_AHEAD: usize = 2;

/// What the three stages of a run work with.
pub(crate) struct Pipeline<'a, 'w> {
    pub(crate) plan: &'a Plan,
    pub(crate) prefetch: usize,
    pub(crate) backend: &'w mut Backend<'a>,
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
        let layout = writer.columns.layout();
        let first = writer.batches;
        thread::scope(|scope| {
            thread::Builder::new()
                .name("reader".into())
                .spawn_scoped(scope, move || read(plan, first, parts, &packs_in))?;
            let writer = thread::Builder::new()
                .name("writer".into())
                .spawn_scoped(scope, move || {
                    writer.write(&results_out, plan.total.batches)
                })?;
            let computed = self.backend.run(layout, &packs, &results, observer);
            // The other threads end when their queues do.
            drop((packs, results));
            let written = writer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(computed)
        })
    }
}
