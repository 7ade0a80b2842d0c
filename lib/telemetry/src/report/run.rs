//! One run.

use plmkit_contract::plural;
use serde::Serialize;

use super::efficiency::Efficiency;
use super::mean::share;
use super::packing::{Packing, PackingCount};
use super::pictures::RunPictures;
use super::queue::{Queue, QueueCount};
use super::run_gpu::RunGpu;
use super::seen::Seen;
use super::session::Session;
use super::stages::{Stages, StagesCount};
use super::work::Work;
use crate::Timestamp;
use crate::event::{BatchDone, Event, Outcome, RunDone, RunStarted};

/// What the events of one run say. Counts are sums over its batch events; a batch that is there twice counts once.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// The run's name.
    pub run: String,
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
    /// How many times it was started under this name: again, where it was killed and went on.
    pub sessions: u64,
    /// How it ended; `None` where it was killed or is still running.
    #[cfg_attr(test, schemars(schema_with = "super::schema::outcome"))]
    pub outcome: Option<Outcome>,
    /// Seconds by a monotonic clock, to the end or to the last batch known; of all sessions together.
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
    /// Whether all its sessions computed in the same way on the same devices.
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
    pub(super) fn join(&mut self, gpus: Option<Vec<RunGpu>>, peak_tflops: Option<f64>) {
        if self.gpu_uuids.is_none() && gpus.as_ref().is_some_and(|gpus| gpus.len() > 1) {
            self.notes.push("the run does not say which GPUs it worked on: all of the log are taken for its own".to_owned());
        }
        // Of sessions on different devices no figure would be right.
        let gpus = gpus.filter(|_| self.alike);
        self.efficiency = Efficiency::of(self, gpus.as_deref(), peak_tflops);
        if self.efficiency.mfu.is_some_and(|mfu| mfu > 1.0) {
            self.notes.push("an MFU above 100 % cannot be: the peak is another than that of --peak-tflops or of the GPU's name, or the events are wrong".to_owned());
        }
        self.gpus = gpus;
    }
}

#[derive(Clone, Debug)]
pub(super) struct RunCount {
    run: String,
    /// One at least.
    sessions: Vec<Session>,
    /// The session that events belong to now.
    session: usize,
    /// The elapsed time of the sessions before that one.
    before_s: f64,
    seen_batches: Seen,
    batches: u64,
    doubled: u64,
    sequences: u64,
    residues: u64,
    tokens: u64,
    oom_splits: u64,
    rejected: u64,
    work: Work,
    stages: StagesCount,
    queue: QueueCount,
    packing: PackingCount,
    pictures: Option<RunPictures>,
}

impl RunCount {
    /// `drawn`: whether there will be pictures of it.
    pub(super) fn new(run: &str, drawn: bool) -> Self {
        Self {
            run: run.to_owned(),
            sessions: vec![Session::default()],
            session: 0,
            before_s: 0.0,
            seen_batches: Seen::default(),
            batches: 0,
            doubled: 0,
            sequences: 0,
            residues: 0,
            tokens: 0,
            oom_splits: 0,
            rejected: 0,
            work: Work::default(),
            stages: StagesCount::default(),
            queue: QueueCount::default(),
            packing: PackingCount::default(),
            pictures: drawn.then(RunPictures::default),
        }
    }

    pub(super) fn run(&self) -> &str {
        &self.run
    }

    pub(super) fn add(&mut self, event: Event) {
        match event {
            Event::Run(started) => self.start(started),
            Event::Batch(batch) => self.add_batch(&batch),
            Event::Done(done) => self.sessions[self.session].end(done),
            // Of no run.
            Event::Probe(_) => {}
        }
    }

    /// A start that is there already is a part of the log that is there twice, and no session of its own.
    fn start(&mut self, started: RunStarted) {
        let same = |session: &Session| session.started.as_ref() == Some(&started);
        let known = self.sessions.iter().position(same);
        self.session = known.unwrap_or_else(|| {
            if self.sessions[self.session].started.is_some() {
                self.sessions.push(Session::default());
            }
            self.sessions.len() - 1
        });
        let before = self.sessions[..self.session].iter();
        self.before_s = before.filter_map(Session::elapsed_s).sum();
        self.sessions[self.session].start(started);
    }

    fn add_batch(&mut self, batch: &BatchDone) {
        self.sessions[self.session].batch(batch.time, batch.elapsed_s);
        if !self.seen_batches.insert(batch.batch) {
            self.doubled += 1;
            return;
        }
        self.batches += 1;
        self.sequences += batch.sequences;
        self.residues += batch.residues;
        self.tokens += batch.tokens;
        self.oom_splits += batch.oom_splits;
        self.rejected += batch.rejected;
        self.work.add(batch);
        self.stages.add(batch);
        self.queue.add(batch);
        let utilization = self.packing.add(batch);
        if let Some(pictures) = &mut self.pictures {
            pictures.add(batch, self.before_s, utilization);
        }
    }

    /// Its sessions, one at least.
    pub(super) fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    pub(super) fn finish(self) -> RunSummary {
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
        let first_started = self.sessions[0].started.as_ref();
        let first_time = first_started.and_then(|started| started.time);
        let alike = self.are_alike();
        let sessions = self.sessions.len() as u64;
        let last = self.sessions.into_iter().next_back().unwrap_or_default();
        let started = last.started.unwrap_or_default();
        RunSummary {
            flops: self.work.flops(&started).filter(|_| alike),
            run: self.run,
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
            sessions,
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
        let known = self.sessions.iter().filter_map(Session::elapsed_s);
        known.reduce(|sum, elapsed_s| sum + elapsed_s)
    }

    /// Whether one figure can say how well all sessions used their devices.
    fn are_alike(&self) -> bool {
        let pairs = self.sessions.windows(2);
        pairs.into_iter().all(|pair| pair[0].is_like(&pair[1]))
    }

    fn last_done(&self) -> Option<&RunDone> {
        self.sessions.last()?.done.as_ref()
    }

    /// What a run took over from an earlier one is in its last event only.
    fn rejected(&self) -> u64 {
        let said = self.last_done().map_or(0, |done| done.rejected);
        said.max(self.rejected)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let last = self.sessions.last();
        let saved = last.and_then(|session| session.started.as_ref()?.batches_saved);
        if let Some(saved) = saved.filter(|&saved| saved > 0) {
            notes.push(format!(
                "{} taken over from an earlier run",
                plural(saved, "batch")
            ));
        }
        if self.sessions.len() > 1 {
            notes.push(format!(
                "it was started {} times: time is that of all of them",
                self.sessions.len()
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
        // Of several sessions the last one speaks for itself only.
        let alone = self.last_done().filter(|_| self.sessions.len() == 1);
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
