//! One run.

use std::collections::{BTreeMap, HashMap};

use plmkit_contract::plural;
use plmkit_logs::event::{BatchDone, Event, Outcome, RunStarted};
use plmkit_logs::{Tier, Timestamp};
use roaring::RoaringTreemap;
use serde::Serialize;

use super::attempt::{Attempt, Work};
use super::batches::{BatchSums, Packing, Queue, Stages};
use super::gpu::RunGpu;
use super::share;

/// Batches at the start of a run that warm up caches and clocks, and of how many batches in all they are told apart.
const WARM_UP: u64 = 5;
const WITH_WARM_UP: u64 = 20;

/// One run with all its attempts, or several runs together. Counts are sums over its batch events. A batch with several events
/// counts once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunSummary {
    /// Its name for people: `SAMPLE/SHARD`, as far as they are known. Of several with one name, the second is `SAMPLE/SHARD #2`.
    pub name: String,
    /// What the first event says; with several attempts, that of the last, with the GPUs of all, and with the start and the batches
    /// of the first. Unknown values are left out.
    #[serde(flatten)]
    pub setup: RunStarted,
    /// Processes that worked on it, one after the other. More than one if it was interrupted and resumed.
    pub attempts: u64,
    /// Batches that were computed again, because an interruption came before they were saved.
    pub lost_batches: u64,
    /// Their tokens.
    pub lost_tokens: u64,
    /// How it ended; `None` if it was killed or is still running.
    pub outcome: Option<Outcome>,
    /// When it ended, or its last known batch.
    pub ended: Option<Timestamp>,
    /// Seconds to the end or to the last known batch, summed over the attempts, by a monotonic clock. Of a log that lost its
    /// head, those from its first batch on: its figures are of that part. Of several runs together, the seconds in which at least one
    /// of them was at work.
    pub elapsed_s: Option<f64>,
    /// Seconds of loading the model, summed over the attempts.
    pub load_s: Option<f64>,
    /// Seconds of all its devices, summed over the attempts. All threads of a CPU are one device.
    pub device_s: Option<f64>,
    /// CPU seconds of its processes, summed over the attempts.
    pub cpu_s: Option<f64>,
    /// Of a run on a CPU: how much of the time in which it computed its threads had a core, 0 to 1.
    pub cpu_share: Option<f64>,
    /// Hours of its GPUs, with loading the model; unknown without a GPU.
    pub gpu_hours: Option<f64>,
    /// Batches computed.
    pub batches: u64,
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
    /// Share of the elapsed time in which its device did not compute, 0 to 1.
    pub idle_share: Option<f64>,
    /// The tier of the idle time; `None` for a run of less than 10 s.
    pub idle_tier: Option<Tier>,
    /// What the work cost, compared with the peak of the devices.
    pub efficiency: Efficiency,
    /// Where the time went: shares are of the elapsed time, of several runs together of the sum of their elapsed times.
    pub stages: Stages,
    /// Computing time by kernels, as run events name them, of the batches whose kernels were measured.
    pub kernels: BTreeMap<String, f64>,
    /// The queue before the device.
    pub queue: Queue,
    /// How full the batches were.
    pub packing: Packing,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Whether an attempt was on a CPU: its energy is unknown.
    #[serde(skip)]
    pub(super) is_on_cpu: bool,
    /// The sum of the elapsed times of several runs together.
    #[serde(skip)]
    pub(super) runs_s: Option<f64>,
    /// When its attempts were at work, and the tokens a second in that time; `None` if that is unknown.
    #[serde(skip)]
    pub(super) work: Option<Vec<Work>>,
    /// Sums over its batches.
    #[serde(skip)]
    pub(super) sums: BatchSums,
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

/// What the work cost, compared with the peak of the devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Efficiency {
    /// Floating-point operations of the batches, on real tokens. A multiplication and an addition are two.
    pub flops: Option<f64>,
    /// Operations that the devices could have computed in the elapsed time at their peak.
    pub possible_flops: Option<f64>,
    /// Model FLOPs utilisation, 0 to 1: operations over the possible ones (`PaLM`, arXiv 2204.02311, appendix B).
    pub mfu: Option<f64>,
    /// Energy of all GPUs over the run's time, in joules.
    pub energy_j: Option<f64>,
    /// Residues for each joule.
    pub residues_per_joule: Option<f64>,
}

impl RunSummary {
    /// Whether everything was computed and written.
    pub(super) fn is_done(&self) -> bool {
        self.outcome == Some(Outcome::Done)
    }

    /// Returns the share of the time that a stage took.
    pub(super) fn stage_share(&self, stage: &str) -> Option<f64> {
        self.stages.get(stage)?.as_ref()?.share
    }

    /// Computes what follows from sums.
    pub(super) fn derive(&mut self) {
        let per_s = |count: u64| share(count as f64, self.elapsed_s);
        self.throughput = Throughput {
            sequences_per_s: per_s(self.sequences),
            residues_per_s: per_s(self.residues),
            tokens_per_s: per_s(self.tokens),
        };
        self.mean_length = share(self.tokens as f64, self.sequences as f64);
        let runs_s = self.runs_s.or(self.elapsed_s);
        self.stages = self.sums.stages(runs_s);
        self.kernels.clone_from(&self.sums.kernels);
        self.queue = self.sums.queue(self.stage_share("wait"));
        self.packing = self.sums.packing();
        let computing = self.stage_share("compute");
        self.idle_share = computing.map(|computing| 1.0 - computing);
        let threads = self.setup.threads.filter(|_| self.is_on_cpu).zip(computing);
        let cores = threads.map(|(threads, computing)| threads as f64 * computing);
        self.cpu_share = share(share(self.cpu_s, cores), runs_s).map(|share| share.min(1.0));
        let idle = self.idle_share.zip(self.elapsed_s);
        self.idle_tier = idle.and_then(|(share, run_s)| Tier::of_idle(share, run_s));
        let of = &mut self.efficiency;
        // A percentage has to be a number, too.
        of.mfu = share(of.flops, of.possible_flops).filter(|mfu| (100.0 * mfu).is_finite());
        of.residues_per_joule = share(self.residues as f64, of.energy_j);
    }

    /// Adds the GPUs and their energy.
    pub(super) fn join_gpus(&mut self, gpus: Option<Vec<RunGpu>>) {
        let joules = |gpus: &Vec<RunGpu>| gpus.iter().map(|gpu| gpu.figures.energy_j).sum();
        let known = gpus.as_ref();
        let known = known.filter(|gpus| !self.is_on_cpu && !gpus.is_empty());
        self.efficiency.energy_j = known.and_then(joules);
        let notes = gpus.iter().flatten().flat_map(|gpu| gpu.notes.clone());
        self.notes.extend(notes);
        self.gpus = gpus;
        self.derive();
        if self.efficiency.mfu > Some(1.0) {
            self.notes.push("an MFU above 100 % cannot be: the peak is another than that of --peak-tflops or of the GPU's name, or the events are wrong".to_owned());
        }
    }
}

/// Numbers those of several runs with one name.
pub(crate) fn number<'r>(runs: impl IntoIterator<Item = &'r mut RunSummary>) {
    let mut known: HashMap<String, u64> = HashMap::new();
    for run in runs {
        let count = known.entry(run.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            run.name = format!("{} #{count}", run.name);
        }
    }
}

/// Sums over the events of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunCount {
    pub(super) attempts: Vec<Attempt>,
    batch_numbers: RoaringTreemap,
    /// Floating-point operations of the batches, without those that were computed again, and whether some are unknown.
    flops: (f64, bool),
    /// The tokens of the first batches, and when they were done.
    warm_up: (u64, Option<f64>),
    /// The counts are up to date.
    summary: RunSummary,
}

impl RunCount {
    /// Adds an attempt with this name and returns its position.
    pub(super) fn begin_attempt(&mut self, name: &str, log: &str) -> usize {
        let mut attempt = Attempt::default();
        name.clone_into(&mut attempt.setup.run);
        log.clone_into(&mut attempt.log);
        self.attempts.push(attempt);
        self.attempts.len() - 1
    }

    /// Whether this run of a job is not done, so that it may be resumed.
    pub(super) fn is_unfinished(&self, job: &str) -> bool {
        self.attempts.last().is_some_and(|last| {
            let outcome = last.done.as_ref().map(|done| done.outcome);
            outcome != Some(Outcome::Done) && last.setup.job.as_deref() == Some(job)
        })
    }

    /// Adds an event of an attempt.
    pub(super) fn add(&mut self, attempt: usize, event: &Event) {
        let is_new = self.attempts[attempt].add(event);
        if let Event::Batch(batch) = event
            && is_new
        {
            self.add_batch(attempt, batch);
        }
    }

    fn add_batch(&mut self, attempt: usize, batch: &BatchDone) {
        let run = &mut self.summary;
        run.sums.add(batch);
        run.peak_device_memory_mib = run.peak_device_memory_mib.max(batch.device_memory_peak_mib);
        if !self.batch_numbers.insert(batch.batch) {
            run.lost_batches += 1;
            run.lost_tokens += batch.tokens;
            return;
        }
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
        let flops = self.attempts[attempt].flops(batch);
        self.flops.0 += flops.unwrap_or(0.0);
        self.flops.1 |= flops.is_none();
        run.sums.add_fill(batch);
    }

    /// Completes the summary of the run. `peak_tflops` is the measured peak of each device, in 1e12 operations a second.
    pub(super) fn finish(self, peak_tflops: Option<f64>) -> RunSummary {
        let all = || self.attempts.iter();
        let sum_of_known = |time: fn(&Attempt) -> Option<f64>| {
            let times = all().filter_map(time);
            times.reduce(|sum, time_s| sum + time_s)
        };
        let elapsed_s = sum_of_known(|attempt| attempt.elapsed_s);
        let is_only = self.attempts.len() == 1;
        let efficiency = Efficiency {
            flops: Some(self.flops.0).filter(|_| !self.flops.1),
            possible_flops: all()
                .map(|attempt| attempt.possible_flops(peak_tflops))
                .sum(),
            ..Efficiency::default()
        };
        let counts = &self.summary;
        let (warm_up, warm_s) = self.warm_up;
        let warm_s = elapsed_s.zip(warm_s).map(|(all_s, warm_s)| all_s - warm_s);
        let is_told = is_only && counts.batches >= WITH_WARM_UP;
        let warm_tokens_per_s = share((counts.tokens - warm_up) as f64, warm_s).filter(|_| is_told);
        let done = self.attempts.last().and_then(|last| last.done.as_ref());
        let mut summary = RunSummary {
            name: self.attempts.last().map(Attempt::name).unwrap_or_default(),
            setup: self.setup(),
            attempts: self.attempts.len() as u64,
            outcome: done.map(|done| done.outcome),
            ended: all().filter_map(Attempt::end).max(),
            elapsed_s,
            load_s: sum_of_known(Attempt::load_s),
            device_s: all().map(Attempt::device_s).sum(),
            cpu_s: all().map(|attempt| attempt.cpu_s).sum(),
            gpu_hours: all().map(Attempt::gpu_hours).sum(),
            // Batches that were taken over from an earlier run have no events, only a count in the last event.
            rejected: done.map_or(0, |done| done.rejected).max(counts.rejected),
            warm_tokens_per_s,
            efficiency,
            notes: self.notes(),
            work: all().map(Attempt::work).collect(),
            is_on_cpu: all().any(|attempt| attempt.gpu_count() == Some(0)),
            ..self.summary
        };
        summary.derive();
        summary
    }

    /// Returns the setup of the last attempt, with the GPUs of all, each once, and with the start and the batches of the first.
    fn setup(&self) -> RunStarted {
        let (Some(first), Some(last)) = (self.attempts.first(), self.attempts.last()) else {
            return RunStarted::default();
        };
        let all = self.attempts.iter().flat_map(Attempt::gpus);
        let gpus: BTreeMap<&String, Option<&String>> =
            all.filter_map(|(uuid, name)| Some((uuid?, name))).collect();
        let mut setup = RunStarted {
            time: first.setup.time,
            batches_total: first.setup.batches_total,
            batches_saved: first.setup.batches_saved,
            gpu_uuids: None,
            ..last.setup.clone()
        };
        if !gpus.is_empty() {
            setup.gpu_names = gpus.values().map(|name| name.cloned()).collect();
            setup.gpu_uuids = Some(gpus.into_keys().cloned().collect());
        }
        setup
    }

    fn notes(&self) -> Vec<String> {
        let (run, attempts) = (&self.summary, self.attempts.len());
        let first = self.attempts.first();
        let saved = first.and_then(|first| first.setup.batches_saved);
        let saved = saved.filter(|&saved| saved > 0);
        let saved = saved.map(|saved| plural(saved, "batch") + " taken over from an earlier run");
        let resumed = (attempts > 1).then(|| {
            format!(
                "it was interrupted and went on: figures are sums over {attempts} attempts, without the time between them"
            )
        });
        let lost = (run.lost_batches > 0).then(|| {
            let batches = plural(run.lost_batches, "batch");
            let tokens = plural(run.lost_tokens, "token");
            format!("computed again after the interruption: {batches} with {tokens}; a shorter checkpoint interval loses less")
        });
        let end = match self.attempts.last().and_then(|last| last.done.as_ref()) {
            // With several attempts, the last event counts the tokens of the last attempt only.
            Some(done) => (attempts == 1 && done.tokens != run.tokens).then(|| {
                let (found, told) = (plural(run.tokens, "token"), done.tokens);
                format!("events are missing: the batches hold {found}, the run says {told}")
            }),
            None => Some("the run has no end: it was killed, or it is still running".to_owned()),
        };
        [saved, resumed, lost, end].into_iter().flatten().collect()
    }
}
