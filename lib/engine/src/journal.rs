//! The run events of this run.

use std::path::Path;
use std::time::{Duration, Instant};

use plmkit_contract::ModelName;
use plmkit_esm2::DeviceTimes;
use plmkit_logs::event::{
    BatchDone, Event, EventWriter, KernelTimes, Outcome, RunDone, RunStarted, milliseconds, run_id,
    utilization,
};
use plmkit_logs::{LogError, ProgressMessage, ProgressReporter, Timestamp, boot_id, boot_seconds};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::plan::{Amount, Job, Plan};

/// Writes run events, if they are wanted, and counts what was done.
pub(crate) struct Journal {
    run: String,
    start: Instant,
    writer: Option<EventWriter>,
    progress: ProgressReporter,
    /// What was written so far.
    pub(crate) done: Totals,
}

/// Sums over batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) sequences: u64,
    pub(crate) tokens: u64,
    pub(crate) residues: u64,
    pub(crate) rejected: u64,
}

/// How long the stages of one batch took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Timing {
    pub(crate) wait: Duration,
    pub(crate) compute: Duration,
    /// What a device with a clock of its own says.
    pub(crate) device: Option<DeviceTimes>,
    pub(crate) queue_depth: u64,
    /// The worker that computed it.
    pub(crate) worker: Option<u64>,
}

/// How a batch came into the output.
pub(crate) struct Written<'a> {
    pub(crate) timing: &'a Timing,
    pub(crate) write: Duration,
    /// How many times it was halved because memory ran out.
    pub(crate) oom_splits: u64,
    /// Its sequences without vectors.
    pub(crate) rejected: u64,
}

/// What the first event says of the run.
pub(crate) struct Started<'a> {
    /// The lasting name of the work.
    pub(crate) job: String,
    pub(crate) facts: &'a Facts,
    pub(crate) model: &'a ModelName,
    /// The GPUs that compute.
    pub(crate) gpu_uuids: Option<Vec<String>>,
    pub(crate) threads: usize,
    pub(crate) workers: Option<u64>,
    /// What is not in a part yet.
    pub(crate) to_compute: Amount,
    /// Batches that an earlier run has saved.
    pub(crate) batches_saved: u64,
    /// How long int8 was compared with f32, if it was.
    pub(crate) compared: Option<Duration>,
}

impl Journal {
    /// Opens the log at `path`, if there is one to be, and writes the first event.
    pub(crate) fn start(
        path: Option<&Path>,
        plan: &Plan,
        started: &Started<'_>,
    ) -> Result<Self, LogError> {
        let facts = started.facts;
        let mut journal = Self {
            run: run_id(),
            start: Instant::now(),
            writer: path.map(EventWriter::append).transpose()?,
            progress: ProgressReporter::default(),
            done: Totals::default(),
        };
        journal.write(&Event::Run(RunStarted {
            run: journal.run.clone(),
            job: Some(started.job.clone()),
            time: Some(Timestamp::now()),
            boot_id: boot_id(),
            boot_s: Some(boot_seconds()),
            tool: "gpu-embed".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model_digest: Some(facts.digest.clone()),
            model: Some(started.model.name.clone()),
            model_revision: started.model.revision.clone(),
            sample: plan.sample().map(str::to_owned),
            device: Some(match started.workers {
                Some(_) => facts.device_kind().to_owned(),
                None => facts.device.clone(),
            }),
            gpu_uuids: started.gpu_uuids.clone(),
            pid: Some(std::process::id()),
            flops_per_token: Some(facts.flops_per_token),
            flops_per_pair: Some(facts.flops_per_pair),
            dtype: Some(facts.dtype.to_string()),
            threads: Some(started.threads as u64),
            workers: started.workers,
            batches_total: Some(started.to_compute.batches),
            sequences_total: Some(started.to_compute.sequences),
            tokens_total: Some(started.to_compute.tokens),
            batches_saved: (started.batches_saved > 0).then_some(started.batches_saved),
            token_budget: plan.token_budget(),
            load_ms: Some(milliseconds(facts.load_times.all)),
            compile_ms: facts.load_times.compiled.map(milliseconds),
            pin_ms: facts.load_times.pinned.map(milliseconds),
            compare_ms: started.compared.map(milliseconds),
        }));
        Ok(journal)
    }

    /// A batch is in the output.
    pub(crate) fn batch(&mut self, job: &Job, written: &Written<'_>) {
        let timing = written.timing;
        let (sequences, tokens) = (job.pack.sequences() as u64, job.pack.tokens().len() as u64);
        // <cls> and <eos> are no residues.
        let residues = tokens - 2 * sequences;
        self.done.sequences += sequences;
        self.done.tokens += tokens;
        self.done.residues += residues;
        self.done.rejected += written.rejected;
        let batch = BatchDone {
            run: self.run.clone(),
            batch: job.index,
            time: Some(Timestamp::now()),
            boot_s: Some(boot_seconds()),
            elapsed_s: Some(self.elapsed().as_secs_f64()),
            wait_ms: Some(milliseconds(timing.wait)),
            h2d_ms: timing.device.map(|times| milliseconds(times.h2d)),
            compute_ms: Some(milliseconds(timing.compute)),
            d2h_ms: timing.device.map(|times| milliseconds(times.d2h)),
            kernels: timing.device.and_then(|times| {
                let kernels = times.kernels?;
                Some(KernelTimes {
                    gemm_ms: milliseconds(kernels.gemm),
                    attention_ms: milliseconds(kernels.attention),
                    embedding_ms: milliseconds(kernels.embedding),
                    layer_norm_ms: milliseconds(kernels.layer_norm),
                    rotary_ms: milliseconds(kernels.rotary),
                    gelu_ms: milliseconds(kernels.gelu),
                    pooling_ms: milliseconds(kernels.pooling),
                    collect_ms: milliseconds(kernels.collect),
                })
            }),
            write_ms: Some(milliseconds(written.write)),
            queue_depth: Some(timing.queue_depth),
            worker: timing.worker,
            sequences,
            tokens,
            residues,
            pairs: Some(pairs(job)),
            token_budget: job.token_budget,
            utilization: job
                .token_budget
                .and_then(|budget| utilization(tokens, budget)),
            tail: job.tail,
            oom_splits: written.oom_splits,
            rejected: written.rejected,
        };
        for message in self.progress.add(&batch) {
            match message {
                ProgressMessage::Line(line) => tracing::info!("{line}"),
                ProgressMessage::Warning(warning) => tracing::warn!("{warning}"),
            }
        }
        self.write(&Event::Batch(batch));
    }

    /// The run is over.
    pub(crate) fn end(&mut self, outcome: Outcome) {
        let event = Event::Done(RunDone {
            run: self.run.clone(),
            time: Some(Timestamp::now()),
            boot_s: Some(boot_seconds()),
            sequences: self.done.sequences,
            tokens: self.done.tokens,
            residues: self.done.residues,
            rejected: self.done.rejected,
            elapsed_s: self.elapsed().as_secs_f64(),
            outcome,
        });
        self.write(&event);
    }

    /// Time since the run began, after the model was loaded.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn write(&mut self, event: &Event) {
        // A log that cannot be written costs the log, not the run. The writer says so once and then keeps quiet.
        if let Some(Err(error)) = self.writer.as_mut().map(|writer| writer.write(event)) {
            tracing::warn!("{error}; the run goes on without run events");
        }
    }
}

/// Pairs of tokens of one sequence.
fn pairs(job: &Job) -> u64 {
    let lengths = job.pack.cu_seqlens().windows(2);
    lengths
        .map(|ends| u64::from(ends[1].abs_diff(ends[0])).pow(2))
        .sum()
}
