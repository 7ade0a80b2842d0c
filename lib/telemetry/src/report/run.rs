//! One run.

use std::collections::{BTreeMap, HashMap};

use plmkit_kit::plural;
use plmkit_logs::event::{Outcome, RunStarted, Totals};
use plmkit_logs::{QueueState, Tier, Timestamp};
use serde::Serialize;

use super::attempt::{Attempt, Work};
use super::gpu::RunGpu;
use super::share;

/// One run with all its attempts, or several runs together.
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
    /// Their tokens, if they are known.
    pub lost_tokens: Option<u64>,
    /// How it ended; `None` if it was killed or is still running.
    pub outcome: Option<Outcome>,
    /// When it ended, or its last known batch.
    pub ended: Option<Timestamp>,
    /// Seconds to the end or to the last known batch, summed over the attempts, by a monotonic clock. Of several runs together, the
    /// seconds in which at least one of them was at work.
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
    /// The totals of the attempts, summed: what was computed, and again.
    #[serde(flatten)]
    pub total: Totals,
    /// Mean tokens of a sequence.
    pub mean_length: Option<f64>,
    /// Work over elapsed time.
    pub throughput: Throughput,
    /// The GPUs that it used, none on a CPU; `None` if unknown.
    pub gpus: Option<Vec<RunGpu>>,
    /// Where the time went: the share of the elapsed time that each stage took, of several runs together of the sum of their elapsed
    /// times. Stages may overlap, so their shares need not add up to one.
    pub shares: BTreeMap<String, f64>,
    /// Share of the elapsed time in which its device did not compute, 0 to 1.
    pub idle_share: Option<f64>,
    /// The tier of the idle time; `None` for a run of less than 10 s.
    pub idle_tier: Option<Tier>,
    /// The state of the queue over the run, by the share of the time that waits took.
    pub queue: Option<QueueState>,
    /// Mean fill of the batches: tokens over the token budget, 0 to 1.
    pub mean_fill: Option<f64>,
    /// The tier of the mean fill.
    pub packing_tier: Option<Tier>,
    /// What the work cost, compared with the peak of the devices.
    pub efficiency: Efficiency,
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
    /// Sums up the attempts at a run. `peak_tflops` is the measured peak of each device, in 1e12 operations a second.
    pub(crate) fn new(attempts: &[Attempt], peak_tflops: Option<f64>) -> Self {
        let all = || attempts.iter();
        let sum_of_known = |time: fn(&Attempt) -> Option<f64>| {
            let times = all().filter_map(time);
            times.reduce(|sum, time_s| sum + time_s)
        };
        let done = attempts.last().and_then(|last| last.done.as_ref());
        let totals = all().map(|attempt| attempt.total.clone());
        let mut total = totals.reduce(|sum, total| sum + total).unwrap_or_default();
        // Those of batches that were taken over from an earlier run are known at the end.
        total.rejected = done.map_or(0, |done| done.rejected).max(total.rejected);
        let (lost_batches, lost_tokens) = lost(attempts);
        let possible = all().map(|attempt| attempt.possible_flops(peak_tflops));
        let mut summary = Self {
            name: attempts.last().map(Attempt::name).unwrap_or_default(),
            setup: setup(attempts),
            attempts: attempts.len() as u64,
            lost_batches,
            lost_tokens,
            outcome: done.map(|done| done.outcome),
            ended: all().filter_map(Attempt::end).max(),
            elapsed_s: sum_of_known(|attempt| attempt.elapsed_s),
            load_s: sum_of_known(Attempt::load_s),
            device_s: all().map(Attempt::device_s).sum(),
            cpu_s: all().map(|attempt| attempt.cpu_s).sum(),
            gpu_hours: all().map(Attempt::gpu_hours).sum(),
            total,
            efficiency: Efficiency {
                flops: all().map(Attempt::flops).sum(),
                possible_flops: possible.sum(),
                ..Efficiency::default()
            },
            work: all().map(Attempt::work).collect(),
            is_on_cpu: all().any(|attempt| attempt.gpu_count() == Some(0)),
            ..Self::default()
        };
        summary.notes = summary.remarks();
        summary.derive();
        summary
    }

    /// Whether everything was computed and written.
    pub(super) fn is_done(&self) -> bool {
        self.outcome == Some(Outcome::Done)
    }

    /// Returns the share of the time that a stage took.
    pub(super) fn stage_share(&self, stage: &str) -> Option<f64> {
        self.shares.get(stage).copied()
    }

    /// Computes what follows from sums.
    pub(super) fn derive(&mut self) {
        let total = &self.total;
        let per_s = |count: u64| share(count as f64, self.elapsed_s);
        self.throughput = Throughput {
            sequences_per_s: per_s(total.sequences),
            residues_per_s: per_s(total.residues),
            tokens_per_s: per_s(total.tokens),
        };
        self.mean_length = share(total.tokens as f64, total.sequences as f64);
        let runs_s = self.runs_s.or(self.elapsed_s);
        let shares = total.stages.iter().filter_map(|(name, stage)| {
            // The writes of a killed run may go beyond the last known time.
            let share = share(stage.ms / 1000.0, runs_s)?.min(1.0);
            Some((name.clone(), share))
        });
        self.shares = shares.collect();
        self.queue = self.stage_share("wait").map(QueueState::of);
        self.mean_fill = self.total.packing.mean_fill();
        self.packing_tier = self.mean_fill.map(Tier::of_packing);
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
        of.residues_per_joule = share(self.total.residues as f64, of.energy_j);
    }

    fn remarks(&self) -> Vec<String> {
        let saved = self.setup.batches_saved.filter(|&saved| saved > 0);
        let saved = saved.map(|saved| plural(saved, "batch") + " taken over from an earlier run");
        let attempts = self.attempts;
        let resumed = (attempts > 1).then(|| {
            format!(
                "it was interrupted and went on: figures are sums over {attempts} attempts, without the time between them"
            )
        });
        let lost = (self.lost_batches > 0).then(|| {
            let batches = plural(self.lost_batches, "batch");
            let tokens = self.lost_tokens.map(|tokens| plural(tokens, "token"));
            let tokens = tokens.map_or_else(String::new, |tokens| format!(" with {tokens}"));
            format!("computed again after the interruption: {batches}{tokens}; a shorter checkpoint interval loses less")
        });
        let end = self.outcome.is_none();
        let end =
            end.then(|| "the run has no end: it was killed, or it is still running".to_owned());
        [saved, resumed, lost, end].into_iter().flatten().collect()
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

/// Returns the batches, and their tokens, that an attempt computed and the next one computed again: those that are beyond what the
/// next one took over, by what both were to do.
fn lost(attempts: &[Attempt]) -> (u64, Option<u64>) {
    let pairs = attempts.windows(2);
    let pairs = pairs.filter(|pair| pair.iter().all(|attempt| attempt.is_started));
    let (mut batches, mut tokens) = (0_u64, Some(0_u64));
    for pair in pairs {
        let [first, next] = [&pair[0], &pair[1]];
        let saved = |attempt: &Attempt| attempt.setup.batches_saved.unwrap_or(0);
        let kept = saved(next).saturating_sub(saved(first));
        batches = batches.saturating_add(first.total.batches.saturating_sub(kept));
        let to_do = first.setup.tokens_total.zip(next.setup.tokens_total);
        let kept = to_do.map(|(before, after)| before.saturating_sub(after));
        let more = kept.map(|kept| first.total.tokens.saturating_sub(kept));
        tokens = tokens.zip(more).map(|(sum, more)| sum.saturating_add(more));
    }
    (batches, tokens)
}

/// Returns the setup of the last attempt, with the GPUs of all, each once, and with the start and the batches of the first.
fn setup(attempts: &[Attempt]) -> RunStarted {
    let (Some(first), Some(last)) = (attempts.first(), attempts.last()) else {
        return RunStarted::default();
    };
    let all = attempts.iter().flat_map(Attempt::gpus);
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
