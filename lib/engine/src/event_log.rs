//! The run events of this run.

use std::path::Path;
use std::time::{Duration, Instant};

use plmkit_esm2::KernelKind;
use plmkit_logs::event::{
    BatchDone, Event, EventWriter, Outcome, RunDone, RunStarted, milliseconds, run_id, utilization,
};
use plmkit_logs::{ProgressReporter, Timestamp, boot_id, boot_seconds, host_name};
use plmkit_store::StoreError;

use crate::batch::{Batch, BatchStats};

/// Writes run events, if `--events` is given, and sums up the batches.
pub(crate) struct EventLog {
    start: Instant,
    writer: Option<EventWriter>,
    /// `None` after the end.
    progress: Option<ProgressReporter>,
    /// The last event, with the sums over the batches so far.
    pub(crate) done: RunDone,
}

/// The fields of `kernels` of an event.
const KERNELS: [(&str, KernelKind); 8] = [
    ("gemm_ms", KernelKind::Gemm),
    ("attention_ms", KernelKind::Attention),
    ("embedding_ms", KernelKind::Embedding),
    ("layer_norm_ms", KernelKind::LayerNorm),
    ("rotary_ms", KernelKind::Rotary),
    ("gelu_ms", KernelKind::Gelu),
    ("pooling_ms", KernelKind::Pooling),
    ("collect_ms", KernelKind::Collect),
];

impl EventLog {
    /// Opens the log at `path`, if there is one, and writes the first event with a new run id.
    pub(crate) fn start(path: Option<&Path>, started: RunStarted) -> Result<Self, StoreError> {
        let mut log = Self {
            start: Instant::now(),
            writer: path.map(EventWriter::append).transpose()?,
            progress: Some(ProgressReporter::new(started.workers.unwrap_or(1))),
            done: RunDone {
                run: run_id(),
                ..RunDone::default()
            },
        };
        log.write(&Event::Run(RunStarted {
            run: log.done.run.clone(),
            time: Some(Timestamp::now()),
            host: host_name(),
            boot_id: boot_id(),
            boot_s: Some(boot_seconds()),
            ..started
        }));
        Ok(log)
    }

    /// Writes the event of a batch in the output. `write` is the time that writing took, `rejected` the sequences without vectors.
    pub(crate) fn write_batch(
        &mut self,
        batch: &Batch,
        stats: &BatchStats,
        write: Duration,
        rejected: u64,
    ) {
        let times = batch.times() as u64;
        let sequences = batch.packed.sequences() as u64 * times;
        let tokens = batch.packed.tokens().len() as u64 * times;
        // Without <cls> and <eos>.
        let residues = tokens - 2 * sequences;
        self.done.sequences += sequences;
        self.done.tokens += tokens;
        self.done.residues += residues;
        self.done.rejected += rejected;
        let event = BatchDone {
            run: self.done.run.clone(),
            batch: batch.index,
            time: Some(Timestamp::now()),
            boot_s: Some(boot_seconds()),
            elapsed_s: Some(self.elapsed().as_secs_f64()),
            wait_ms: Some(milliseconds(stats.wait)),
            h2d_ms: stats.device.map(|times| milliseconds(times.h2d)),
            compute_ms: Some(milliseconds(stats.compute)),
            d2h_ms: stats.device.map(|times| milliseconds(times.d2h)),
            kernels: stats.device.and_then(|times| times.kernels).map(|kernels| {
                KERNELS
                    .map(|(name, kind)| (name.to_owned(), milliseconds(kernels[kind as usize])))
                    .into()
            }),
            write_ms: Some(milliseconds(write)),
            queue_depth: Some(stats.queue_depth),
            worker: stats.worker,
            sequences,
            tokens,
            residues,
            longest: lengths(batch).max(),
            pairs: Some(lengths(batch).map(|length| length * length * times).sum()),
            token_budget: batch.token_budget,
            utilization: batch
                .token_budget
                .and_then(|budget| utilization(tokens, budget)),
            tail: batch.tail,
            oom_splits: stats.oom_splits,
            recomputed: stats.in_f32,
            device_memory_mib: stats.memory_mib.map(|(now, _)| now),
            device_memory_peak_mib: stats.memory_mib.map(|(_, peak)| peak),
            rejected,
        };
        let progress = self.progress.as_mut();
        if let Some((line, warnings)) = progress.and_then(|progress| progress.add(&event)) {
            tracing::info!("{line}");
            warn_of(&warnings);
        }
        self.write(&Event::Batch(event));
    }

    /// Writes the last event. Returns how full the batches were and how long devices waited.
    pub(crate) fn end(&mut self, outcome: Outcome) -> Vec<String> {
        // After an error, the error is all there is to say.
        let progress = self.progress.take();
        let progress = progress.filter(|_| outcome != Outcome::Failed);
        let elapsed_s = self.elapsed().as_secs_f64();
        let (tiers, warnings) = progress.map_or_else(Default::default, |run| run.finish(elapsed_s));
        warn_of(&warnings);
        self.write(&Event::Done(RunDone {
            time: Some(Timestamp::now()),
            boot_s: Some(boot_seconds()),
            elapsed_s: self.elapsed().as_secs_f64(),
            outcome,
            ..self.done.clone()
        }));
        tiers
    }

    /// Time since the run began, after the model was loaded.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn write(&mut self, event: &Event) {
        // A run goes on if its log cannot be written. The writer returns the error once.
        if let Some(Err(error)) = self.writer.as_mut().map(|writer| writer.write(event)) {
            tracing::warn!("{error}; the run goes on without run events");
        }
    }
}

fn warn_of(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Tokens of each sequence.
fn lengths(batch: &Batch) -> impl Iterator<Item = u64> {
    let ends = batch.packed.cu_seqlens().windows(2);
    ends.map(|ends| u64::from(ends[1].abs_diff(ends[0])))
}
