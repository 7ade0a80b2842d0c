//! One run.

use std::collections::HashSet;

use plmkit_contract::plural;
use rangemap::RangeSet;
use serde::Serialize;

use plmkit_logs::Timestamp;
use plmkit_logs::event::{BatchDone, Event, Outcome, RunDone, RunStarted};

use super::attempt::{Attempt, AttemptSummary, one};
use super::batches::{BatchDistributions, BatchSums, Packing, Queue, Stages};
use super::charts::RunPictures;
use super::efficiency::Efficiency;
use super::gpu::RunGpu;
use super::host::HostSummary;
use super::idle::Idle;
use super::worker::{WorkerSummary, Workers};
use super::{Tier, share};

/// Batches at the start of a run that warm up caches and clocks, and of how many batches in all they are told apart.
const WARM_UP: u64 = 5;
const WITH_WARM_UP: u64 = 20;

/// One run with all its attempts. Counts are sums over its batch events. A batch with several events counts once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunSummary {
    /// The run's name; with several attempts, that of the last.
    pub run: String,
    /// The lasting name of the work, which attempts at one run share.
    pub job: Option<String>,
    /// The program.
    pub tool: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The name of the sample that the sequences belong to.
    pub sample: Option<String>,
    /// The name of the model.
    pub model: Option<String>,
    /// The model's commit of the Hugging Face Hub.
    pub model_revision: Option<String>,
    /// Digest of the model.
    pub model_digest: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// The version of the NVIDIA driver.
    pub driver_version: Option<String>,
    /// The newest version of CUDA that the driver supports.
    pub cuda_version: Option<String>,
    /// The device: `cpu`, `cuda`, `cuda:0`.
    pub device: Option<String>,
    /// Product names of the GPUs, in the order of their UUIDs.
    pub gpu_names: Option<Vec<String>>,
    /// UUIDs of the GPUs.
    pub gpu_uuids: Option<Vec<String>>,
    /// The number type of the computation.
    pub dtype: Option<String>,
    /// What computes the layers: an instruction set of CPU kernels, `cuda` or `libtorch`.
    pub kernel_set: Option<String>,
    /// Tokens of a full batch.
    pub token_budget: Option<u64>,
    /// CPU threads.
    pub threads: Option<u64>,
    /// Worker processes, if the run used any.
    pub workers: Option<u64>,
    /// When it started.
    pub started: Option<Timestamp>,
    /// Processes that worked on it, one after the other. More than one if it was interrupted and resumed.
    pub attempts: u64,
    /// Those processes.
    pub by_attempt: Vec<AttemptSummary>,
    /// Batches that were computed again, because an interruption came before they were saved.
    pub lost_batches: u64,
    /// Their tokens.
    pub lost_tokens: u64,
    /// How it ended; `None` if it was killed or is still running.
    pub outcome: Option<Outcome>,
    /// Seconds to the end or to the last known batch, summed over the attempts, by a monotonic clock. Of a log that lost its
    /// head, those from its first batch on: its figures are of that part.
    pub elapsed_s: Option<f64>,
    /// Seconds of loading the model before the last attempt.
    pub load_s: Option<f64>,
    /// Share of loading in the time of loading and of the run, over all attempts.
    pub load_share: Option<f64>,
    /// Batches computed.
    pub batches: u64,
    /// Batches to compute, those of all attempts.
    pub batches_total: Option<u64>,
    /// Batches that the first attempt took over from an earlier run.
    pub batches_saved: Option<u64>,
    /// Sequences (rows) computed.
    pub sequences: u64,
    /// Residues computed.
    pub residues: u64,
    /// Tokens computed, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// How many times a batch was halved because memory ran out.
    pub oom_splits: u64,
    /// Sequences (rows) that were computed again in f32 because values overflowed.
    pub recomputed: u64,
    /// Sequences (rows) that could not be embedded.
    pub rejected: u64,
    /// Tokens of the longest sequence.
    pub longest: Option<u64>,
    /// Mean tokens of a sequence.
    pub mean_length: Option<f64>,
    /// The most device memory that tensors of a process held, in MiB.
    pub peak_device_memory_mib: Option<u64>,
    /// Work over elapsed time.
    pub throughput: Throughput,
    /// Tokens a second after the first five batches, which warm caches up; of one attempt with 20 batches and more.
    pub warm_tokens_per_s: Option<f64>,
    /// The GPUs that it used, none on a CPU; `None` if unknown.
    pub gpus: Option<Vec<RunGpu>>,
    /// Its machine during the run; `None` if no samples are known to be of it.
    pub machine: Option<HostSummary>,
    /// The workers, or the only process of the run.
    pub by_worker: Vec<WorkerSummary>,
    /// Time in which the device had no work: the mean over the workers.
    pub idle: Option<Idle>,
    /// The tier of the idle time; `None` for a run of less than 10 s.
    pub idle_tier: Option<Tier>,
    /// What the work cost, compared with the peak of the devices.
    pub efficiency: Efficiency,
    /// Where the time went.
    pub stages: Stages,
    /// The queue before the device.
    pub queue: Queue,
    /// Figures over the batches.
    pub distributions: BatchDistributions,
    /// How full the batches were.
    pub packing: Packing,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Floating-point operations of all batches.
    #[serde(skip)]
    pub(super) flops: Option<f64>,
    /// Chart data.
    #[serde(skip)]
    pub(super) pictures: Option<RunPictures>,
}

/// Work over elapsed time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Sequences (rows) a second.
    pub sequences_per_s: Option<f64>,
    /// Residues a second.
    pub residues_per_s: Option<f64>,
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
}

impl Throughput {
    /// Divides sequences, residues and tokens by a time.
    pub(super) fn new(counts: [u64; 3], elapsed_s: Option<f64>) -> Self {
        let [sequences_per_s, residues_per_s, tokens_per_s] =
            counts.map(|count| share(count as f64, elapsed_s));
        Self {
            sequences_per_s,
            residues_per_s,
            tokens_per_s,
        }
    }
}

impl RunSummary {
    /// Whether everything was computed and written.
    pub(super) fn is_done(&self) -> bool {
        self.outcome == Some(Outcome::Done)
    }

    /// Returns in a word how it ended.
    pub(super) fn end(&self) -> &'static str {
        self.outcome.map_or("no end", Into::into)
    }

    pub(super) fn is_on_cpu(&self) -> bool {
        self.device.as_deref() == Some("cpu")
    }

    /// Returns the hours of its GPUs, over all attempts; 0 on a CPU.
    pub(super) fn gpu_hours(&self) -> Option<f64> {
        self.by_attempt
            .iter()
            .map(|attempt| attempt.gpu_hours)
            .sum()
    }

    /// Adds the GPUs and computes the efficiency.
    pub(super) fn join_gpus(&mut self, gpus: Option<Vec<RunGpu>>, peak_tflops: Option<f64>) {
        self.gpus = gpus;
        let gpu_notes = self.gpus.iter().flatten().flat_map(|gpu| &gpu.notes);
        self.notes.extend(gpu_notes.cloned());
        self.efficiency = Efficiency::new(self, self.gpus.as_deref(), peak_tflops);
        if self.efficiency.mfu.is_some_and(|mfu| mfu > 1.0) {
            self.notes.push("an MFU above 100 % cannot be: the peak is another than that of --peak-tflops or of the GPU's name, or the events are wrong".to_owned());
        }
    }
}

/// Sums over the events of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunCount {
    attempts: Vec<Attempt>,
    batch_numbers: RangeSet<i128>,
    /// Batch events that are there twice.
    repeated: u64,
    sums: BatchSums,
    /// The tokens of the first batches, and when they were done.
    warm_up: (u64, Option<f64>),
    /// The counts and chart data are up to date.
    summary: RunSummary,
}

impl RunCount {
    /// `with_pictures` asks for chart data.
    pub(super) fn new(with_pictures: bool) -> Self {
        Self {
            summary: RunSummary {
                pictures: with_pictures.then(RunPictures::default),
                ..RunSummary::default()
            },
            ..Self::default()
        }
    }

    /// Adds an attempt with this name and returns its position.
    pub(super) fn begin_attempt(&mut self, name: &str) -> usize {
        let last = self.attempts.last();
        let before_s = last.map_or(0.0, |last| {
            last.before_s + last.summary.elapsed_s.unwrap_or(0.0)
        });
        self.attempts.push(Attempt::new(name, before_s));
        self.attempts.len() - 1
    }

    /// Whether this run of a job is not done, so that it may be resumed.
    pub(super) fn is_unfinished(&self, job: &str) -> bool {
        let is_done = self
            .last_done()
            .is_some_and(|done| done.outcome == Outcome::Done);
        let known = self
            .last_started()
            .and_then(|started| started.job.as_deref());
        !is_done && known == Some(job)
    }

    pub(super) fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Adds an event of an attempt.
    pub(super) fn add(&mut self, attempt: usize, event: &Event) {
        let is_new = self.attempts[attempt].add(event);
        match event {
            Event::Batch(batch) if is_new => self.add_batch(attempt, batch),
            Event::Batch(_) => self.repeated += 1,
            _ => {}
        }
    }

    fn add_batch(&mut self, attempt: usize, batch: &BatchDone) {
        self.sums.add(batch);
        let run = &mut self.summary;
        run.peak_device_memory_mib = run.peak_device_memory_mib.max(batch.device_memory_peak_mib);
        if self.batch_numbers.contains(&batch.batch.into()) {
            run.lost_batches += 1;
            run.lost_tokens += batch.tokens;
            self.attempts[attempt].summary.batches_again += 1;
            return;
        }
        self.batch_numbers.insert(one(batch.batch));
        run.batches += 1;
        run.sequences += batch.sequences;
        run.residues += batch.residues;
        run.tokens += batch.tokens;
        if run.batches == WARM_UP {
            self.warm_up = (run.tokens, batch.elapsed_s);
        }
        run.oom_splits += batch.oom_splits;
        run.recomputed += batch.recomputed;
        run.rejected += batch.rejected;
        run.longest = run.longest.max(batch.longest);
        self.attempts[attempt].add_new(batch);
        self.sums.add_fill(batch);
        if let Some(pictures) = &mut run.pictures {
            pictures.add(batch, self.attempts[attempt].before_s);
        }
    }

    /// Completes the summary of the run.
    pub(super) fn finish(self) -> RunSummary {
        let notes = self.notes();
        let (gpu_uuids, gpu_names) = self.gpus();
        let flops = self.flops();
        let sum = |time: fn(&AttemptSummary) -> Option<f64>| {
            let times = self.attempts.iter();
            let times = times.filter_map(|attempt| time(&attempt.summary));
            times.reduce(|sum, time_s| sum + time_s)
        };
        let elapsed_s = sum(|attempt| attempt.elapsed_s);
        let load_s = sum(|attempt| attempt.load_s);
        let mut workers = Workers::default();
        for attempt in &self.attempts {
            attempt.add_workers(&mut workers);
        }
        let idle = workers.idle();
        let stages = self.sums.stages(elapsed_s, workers.elapsed_s());
        let wait_share = stages["wait"].as_ref().and_then(|wait| wait.share);
        let before = [None].into_iter().chain(self.attempts.iter().map(Some));
        let by_attempt = self.attempts.iter().zip(before);
        let by_attempt = by_attempt.map(|(attempt, before)| attempt.finish(before));
        let by_attempt: Vec<AttemptSummary> = by_attempt.collect();
        let last = by_attempt.last().cloned().unwrap_or_default();
        let named = |text: String| Some(text).filter(|text| !text.is_empty());
        // Batches that were taken over from an earlier run have no events, only a count in the last event.
        let rejected = self.last_done().map_or(0, |done| done.rejected);
        let first = self
            .attempts
            .first()
            .and_then(|first| first.started.as_ref());
        let counts = self.summary;
        let amounts = [counts.sequences, counts.residues, counts.tokens];
        let (warm_up, warm_s) = self.warm_up;
        let warm_s = elapsed_s.zip(warm_s).map(|(all_s, warm_s)| all_s - warm_s);
        let is_told = by_attempt.len() == 1 && counts.batches >= WITH_WARM_UP;
        let warm_tokens_per_s = share((counts.tokens - warm_up) as f64, warm_s).filter(|_| is_told);
        let with_load_s = load_s.zip(elapsed_s).map(|(load_s, run_s)| load_s + run_s);
        let started = self.attempts.last().and_then(|last| last.started.clone());
        let started = started.unwrap_or_default();
        RunSummary {
            flops,
            run: last.run,
            by_worker: workers.finish(),
            idle,
            idle_tier: idle.and_then(|idle| idle.tier(elapsed_s)),
            load_share: share(load_s, with_load_s),
            mean_length: share(counts.tokens as f64, counts.sequences as f64),
            started: by_attempt.first().and_then(|first| first.started),
            attempts: by_attempt.len() as u64,
            by_attempt,
            outcome: last.outcome,
            job: started.job,
            tool: named(started.tool),
            version: named(started.version),
            sample: started.sample,
            model: started.model,
            model_revision: started.model_revision,
            model_digest: started.model_digest,
            host: started.host,
            driver_version: started.driver_version,
            cuda_version: started.cuda_version,
            device: started.device,
            gpu_names,
            gpu_uuids,
            dtype: started.dtype,
            kernel_set: started.kernel_set,
            token_budget: started.token_budget,
            threads: started.threads,
            workers: started.workers,
            elapsed_s,
            load_s: last.load_s,
            batches_total: first.and_then(|first| first.batches_total),
            batches_saved: first.and_then(|first| first.batches_saved),
            rejected: rejected.max(counts.rejected),
            throughput: Throughput::new(amounts, elapsed_s),
            warm_tokens_per_s,
            stages,
            queue: self.sums.queue(wait_share),
            distributions: self.sums.distributions(),
            packing: self.sums.packing(),
            notes,
            ..counts
        }
    }

    /// Sums up the operations of the attempts that computed new batches.
    fn flops(&self) -> Option<f64> {
        let (all, is_only) = (self.attempts.iter(), self.attempts.len() == 1);
        let new = all.filter(|attempt| is_only || attempt.has_new());
        new.map(Attempt::flops).sum()
    }

    /// Returns the UUIDs and the product names of the GPUs of all attempts, each GPU once.
    fn gpus(&self) -> (Option<Vec<String>>, Option<Vec<String>>) {
        let all = self.attempts.iter();
        let all = all.filter_map(|attempt| attempt.started.as_ref());
        let mut known = HashSet::new();
        let (mut uuids, mut names) = (Vec::new(), Some(Vec::new()));
        for started in all {
            let own = started.gpu_uuids.iter().flatten().enumerate();
            for (place, uuid) in own.filter(|(_, uuid)| known.insert(uuid.as_str())) {
                uuids.push(uuid.clone());
                let name = started.gpu_names.as_ref();
                let name = name.and_then(|names| names.get(place).cloned());
                names = names.zip(name).map(|(mut names, name)| {
                    names.push(name);
                    names
                });
            }
        }
        if uuids.is_empty() {
            let last = self.last_started();
            return (None, last.and_then(|started| started.gpu_names.clone()));
        }
        (Some(uuids), names)
    }

    fn last_started(&self) -> Option<&RunStarted> {
        self.attempts.last()?.started.as_ref()
    }

    fn last_done(&self) -> Option<&RunDone> {
        self.attempts.last()?.done.as_ref()
    }

    fn notes(&self) -> Vec<String> {
        let (run, attempts) = (&self.summary, self.attempts.len());
        let first = self
            .attempts
            .first()
            .and_then(|first| first.started.as_ref());
        let saved = first.and_then(|first| first.batches_saved);
        let saved = saved.filter(|&saved| saved > 0);
        let saved = saved.map(|saved| plural(saved, "batch") + " taken over from an earlier run");
        let resumed = (attempts > 1).then(|| {
            let pairs = self.attempts.windows(2);
            let gap_s: Option<f64> = pairs.map(|pair| pair[0].span.gap_to(&pair[1].span)).sum();
            let gap = gap_s.map_or_else(String::new, |gap_s| {
                format!(", without {gap_s:.1} s between them")
            });
            format!("it was interrupted and went on: the time is that of {attempts} attempts{gap}")
        });
        let lost = (run.lost_batches > 0).then(|| {
            let batches = plural(run.lost_batches, "batch");
            let tokens = plural(run.lost_tokens, "token");
            format!("computed again after the interruption: {batches} with {tokens}; a shorter checkpoint interval loses less")
        });
        let mut pairs = self.attempts.windows(2);
        let changed = pairs.any(|pair| !pair[0].has_gpus_of(&pair[1])).then(|| {
            "it went on with other devices: its figures are sums over its attempts".to_owned()
        });
        let repeated = Some(self.repeated).filter(|&repeated| repeated > 0);
        let repeated = repeated
            .map(|count| format!("batch events that are there again are counted once: {count}"));
        let end = match self.last_done() {
            // With several attempts, the last event counts the tokens of the last attempt only.
            Some(done) => (attempts == 1 && done.tokens != run.tokens).then(|| {
                let (found, told) = (plural(run.tokens, "token"), done.tokens);
                format!("events are missing: the batches hold {found}, the run says {told}")
            }),
            None => Some("the run has no end: it was killed, or it is still running".to_owned()),
        };
        let notes = [saved, resumed, lost, changed, repeated, end];
        notes.into_iter().flatten().collect()
    }
}
