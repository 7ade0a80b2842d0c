//! One run.

use plmkit_contract::plural;
use serde::Serialize;

use plmkit_logs::Timestamp;
use plmkit_logs::event::{BatchDone, Event, Outcome, RunDone, RunStarted};

use super::attempt::Attempt;
use super::efficiency::Efficiency;
use super::number_set::NumberSet;
use super::packing::{Packing, PackingCount};
use super::pictures::RunPictures;
use super::queue::{Queue, QueueCount};
use super::run_gpu::RunGpu;
use super::share;
use super::stages::{Stages, StagesCount};

/// One run, with all attempts at it. Counts are sums over its batch events; a batch that is there twice counts once.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// The run's name: of several attempts, that of the last.
    pub run: String,
    /// The lasting name of the work, by which attempts belong together.
    pub job: Option<String>,
    /// The program.
    pub tool: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The sample that the sequences are of, where it has a name.
    pub sample: Option<String>,
    /// What the model is called.
    pub model: Option<String>,
    /// Its commit of the Hugging Face Hub, where it is known.
    pub model_revision: Option<String>,
    /// Digest of the model.
    pub model_digest: Option<String>,
    /// Where it computed.
    pub device: Option<String>,
    /// The GPUs, by UUID.
    pub gpu_uuids: Option<Vec<String>>,
    /// The number type of the computation.
    pub dtype: Option<String>,
    /// CPU threads.
    pub threads: Option<u64>,
    /// The processes that computed, where the run itself did not.
    pub workers: Option<u64>,
    /// When it started.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub started: Option<Timestamp>,
    /// How many processes were at work on it, one after the other: more than one where it was interrupted and went on.
    pub attempts: u64,
    /// How it ended; `None` where it was killed or is still running.
    #[cfg_attr(test, schemars(schema_with = "super::tests::outcome_schema"))]
    pub outcome: Option<Outcome>,
    /// Seconds by a monotonic clock, to the end or to the last batch known; of all attempts together.
    pub elapsed_s: Option<f64>,
    /// Seconds in which the model was loaded before that, when it was started last.
    pub load_s: Option<f64>,
    /// Batches computed.
    pub batches: u64,
    /// Batches to compute.
    pub batches_total: Option<u64>,
    /// Batches taken over from an earlier, interrupted run.
    pub batches_saved: Option<u64>,
    /// Sequences (rows) computed.
    pub sequences: u64,
    /// Residues computed.
    pub residues: u64,
    /// Tokens computed, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// How many times a batch was halved because memory ran out.
    pub oom_splits: u64,
    /// Sequences (rows) that could not be embedded.
    pub rejected: u64,
    /// Work over elapsed time.
    pub throughput: Throughput,
    /// The GPUs that it worked on, none on a CPU; `None` where nothing tells which.
    pub gpus: Option<Vec<RunGpu>>,
    /// What the work cost, beside what the devices could have done.
    pub efficiency: Efficiency,
    /// Where the time went.
    pub stages: Stages,
    /// The queue before the device.
    pub queue: Queue,
    /// How full the batches were.
    pub packing: Packing,
    /// What else should be known.
    pub notes: Vec<String>,
    /// Whether all attempts computed in the same way on the same devices.
    #[serde(skip)]
    alike: bool,
    /// Floating-point operations of all batches.
    #[serde(skip)]
    pub(super) flops: Option<f64>,
    /// What is drawn of it.
    #[serde(skip)]
    pub(super) pictures: Option<RunPictures>,
}

/// Work over elapsed time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Throughput {
    /// Sequences (rows) a second.
    pub sequences_per_s: Option<f64>,
    /// Residues a second.
    pub residues_per_s: Option<f64>,
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
}

impl RunSummary {
    /// Joins it with what was seen of its GPUs.
    pub(super) fn join_gpus(&mut self, gpus: Option<Vec<RunGpu>>, peak_tflops: Option<f64>) {
        if self.gpu_uuids.is_none() && gpus.as_ref().is_some_and(|gpus| gpus.len() > 1) {
            self.notes.push("the run does not say which GPUs it worked on: all of the log are taken for its own".to_owned());
        }
        // Of attempts on different devices no figure would be right.
        let gpus = gpus.filter(|_| self.alike);
        self.efficiency = Efficiency::new(self, gpus.as_deref(), peak_tflops);
        if self.efficiency.mfu.is_some_and(|mfu| mfu > 1.0) {
            self.notes.push("an MFU above 100 % cannot be: the peak is another than that of --peak-tflops or of the GPU's name, or the events are wrong".to_owned());
        }
        self.gpus = gpus;
    }
}

/// Sums over the events of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunCount {
    attempts: Vec<Attempt>,
    batch_numbers: NumberSet,
    batches: u64,
    doubled: u64,
    sequences: u64,
    residues: u64,
    tokens: u64,
    /// Pairs of tokens of one sequence; `None` once a batch does not say how many it holds.
    pairs: Option<f64>,
    oom_splits: u64,
    rejected: u64,
    stages: StagesCount,
    queue: QueueCount,
    packing: PackingCount,
    pictures: Option<RunPictures>,
}

impl RunCount {
    /// `drawn`: whether there will be pictures of it.
    pub(super) fn new(drawn: bool) -> Self {
        Self {
            pairs: Some(0.0),
            pictures: drawn.then(RunPictures::default),
            ..Self::default()
        }
    }

    /// Makes room for another attempt; its position.
    pub(super) fn begin_attempt(&mut self) -> usize {
        self.attempts.push(Attempt::default());
        self.attempts.len() - 1
    }

    /// Whether it was interrupted during this work, and may go on.
    pub(super) fn is_unfinished(&self, job: &str) -> bool {
        let last = self.attempts.last();
        let started = last.and_then(|attempt| attempt.started.as_ref());
        let done = self
            .last_done()
            .is_some_and(|done| done.outcome == Outcome::Done);
        !done && started.is_some_and(|started| started.job.as_deref() == Some(job))
    }

    pub(super) fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Adds an event of an attempt.
    pub(super) fn add(&mut self, attempt: usize, event: &Event) {
        self.attempts[attempt].add(event);
        if let Event::Batch(batch) = event {
            self.add_batch(attempt, batch);
        }
    }

    fn add_batch(&mut self, attempt: usize, batch: &BatchDone) {
        if !self.batch_numbers.insert(batch.batch) {
            self.doubled += 1;
            return;
        }
        self.batches += 1;
        self.sequences += batch.sequences;
        self.residues += batch.residues;
        self.tokens += batch.tokens;
        let pairs = self.pairs.zip(batch.pairs);
        self.pairs = pairs.map(|(sum, pairs)| sum + pairs as f64);
        self.oom_splits += batch.oom_splits;
        self.rejected += batch.rejected;
        self.stages.add(batch);
        self.queue.add(batch);
        self.packing.add(batch);
        if let Some(pictures) = &mut self.pictures {
            let before = self.attempts[..attempt].iter();
            pictures.add(batch, before.filter_map(Attempt::elapsed_s).sum());
        }
    }

    /// `run` is its name.
    pub(super) fn finish(self, run: String) -> RunSummary {
        let rejected = self.rejected();
        let notes = self.notes();
        let elapsed_s = self.elapsed_s();
        let per_second =
            |count: u64| elapsed_s.and_then(|elapsed_s| share(count as f64, elapsed_s));
        let throughput = Throughput {
            sequences_per_s: per_second(self.sequences),
            residues_per_s: per_second(self.residues),
            tokens_per_s: per_second(self.tokens),
        };
        let named = |text: String| Some(text).filter(|text| !text.is_empty());
        let first_started = self
            .attempts
            .first()
            .and_then(|first| first.started.as_ref());
        let first_time = first_started.and_then(|started| started.time);
        let alike = self.are_alike();
        let attempts = self.attempts.len() as u64;
        let last = self.attempts.into_iter().next_back().unwrap_or_default();
        let started = last.started.unwrap_or_default();
        RunSummary {
            flops: flops(&started, self.tokens, self.pairs).filter(|_| alike),
            run,
            job: started.job,
            tool: named(started.tool),
            version: named(started.version),
            sample: started.sample,
            model: started.model,
            model_revision: started.model_revision,
            model_digest: started.model_digest,
            device: started.device,
            gpu_uuids: started.gpu_uuids,
            dtype: started.dtype,
            threads: started.threads,
            workers: started.workers,
            started: first_time,
            attempts,
            outcome: last.done.map(|done| done.outcome),
            elapsed_s,
            load_s: started.load_ms.map(|load_ms| load_ms / 1000.0),
            batches: self.batches,
            batches_total: started.batches_total,
            batches_saved: started.batches_saved,
            sequences: self.sequences,
            residues: self.residues,
            tokens: self.tokens,
            oom_splits: self.oom_splits,
            rejected,
            throughput,
            gpus: None,
            efficiency: Efficiency::default(),
            stages: self
                .stages
                .finish(elapsed_s, started.workers.unwrap_or(1).max(1)),
            queue: self.queue.finish(),
            packing: self.packing.finish(),
            notes,
            alike,
            pictures: self.pictures,
        }
    }

    fn elapsed_s(&self) -> Option<f64> {
        let known = self.attempts.iter().filter_map(Attempt::elapsed_s);
        known.reduce(|sum, elapsed_s| sum + elapsed_s)
    }

    /// Whether one figure can say how well all attempts used their devices.
    fn are_alike(&self) -> bool {
        let pairs = self.attempts.windows(2);
        pairs.into_iter().all(|pair| pair[0].is_like(&pair[1]))
    }

    fn last_done(&self) -> Option<&RunDone> {
        self.attempts.last()?.done.as_ref()
    }

    /// What a run took over from an earlier one is in its last event only.
    fn rejected(&self) -> u64 {
        let said = self.last_done().map_or(0, |done| done.rejected);
        said.max(self.rejected)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let last = self.attempts.last();
        let saved = last.and_then(|attempt| attempt.started.as_ref()?.batches_saved);
        if let Some(saved) = saved.filter(|&saved| saved > 0) {
            notes.push(format!(
                "{} taken over from an earlier run",
                plural(saved, "batch")
            ));
        }
        if self.attempts.len() > 1 {
            notes.push(format!(
                "it was interrupted and went on: the time is that of {} attempts",
                self.attempts.len()
            ));
        }
        if !self.are_alike() {
            notes.push(
                "it went on with other devices or another type: no MFU and no energy".to_owned(),
            );
        }
        if self.doubled > 0 {
            notes.push(format!(
                "batch events that are there again are counted once: {}",
                self.doubled
            ));
        }
        // Of several attempts the last one speaks for itself only.
        let alone = self.last_done().filter(|_| self.attempts.len() == 1);
        if let Some(done) = alone.filter(|done| done.tokens != self.tokens) {
            notes.push(format!(
                "events are missing: the batches hold {}, the run says {}",
                plural(self.tokens, "token"),
                done.tokens
            ));
        }
        if self.last_done().is_none() {
            notes.push("the run has no end: it was killed, or it is still running".to_owned());
        }
        notes
    }
}

/// Floating-point operations on real tokens, those of attention included. `None` where a batch or the run leaves a part unsaid:
/// less than was computed would be a wrong figure, not a lower one.
fn flops(started: &RunStarted, tokens: u64, pairs: Option<f64>) -> Option<f64> {
    let of_tokens = tokens as f64 * started.flops_per_token? as f64;
    let of_pairs = pairs? * started.flops_per_pair? as f64;
    Some(of_tokens + of_pairs)
}
