//! One attempt at a run: a process, from its start to its end or interruption.

use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;

use chrono::DateTime;
use plmkit_logs::Timestamp;
use plmkit_logs::event::{BatchDone, Event, Outcome, RunDone, RunStarted, Totals, is_run_id};

use super::bins::Bins;
use super::moments::{extend, micros, time_of_day_us};
use crate::devices;

/// When an attempt was at work, by the time of day in microseconds, and its tokens a second over these seconds.
pub(super) type Work = (Range<i64>, Bins);

/// The events of one process. Elapsed time starts at 0 in each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempt {
    /// The first event; of a log that lost its head, the name alone.
    pub(super) setup: RunStarted,
    pub(super) is_started: bool,
    /// The name of its log, if that is known.
    pub(super) log: String,
    /// The totals of its last event.
    pub(crate) total: Totals,
    pub(super) done: Option<RunDone>,
    /// Seconds to the end or to the last known batch.
    pub(super) elapsed_s: Option<f64>,
    /// CPU seconds to the end or to the last known batch.
    pub(super) cpu_s: Option<f64>,
    /// Tokens a second over the seconds of the attempt, and the seconds and tokens up to the last batch in it.
    pub(super) rate: Bins,
    last_batch: (f64, u64),
    /// The time from its first to its last event, in microseconds since boot.
    pub(super) boot_us: Option<Range<i64>>,
    /// The time of day of its first event, in microseconds.
    start_us: Option<i64>,
}

impl Attempt {
    /// Starts with the name of a run and of its log.
    pub(crate) fn new(run: &str, log: &str) -> Self {
        let mut attempt = Self::default();
        run.clone_into(&mut attempt.setup.run);
        log.clone_into(&mut attempt.log);
        attempt
    }

    /// Whether an event of this name is of another attempt: a first event unlike its own. An equal one is a copy.
    pub(crate) fn is_other(&self, event: &Event) -> bool {
        matches!(event, Event::Run(started) if self.is_started && self.setup != *started)
    }

    /// Adds an event of this process. A batch of a log that is read again changes nothing.
    pub(crate) fn add(&mut self, event: &Event) {
        extend(&mut self.boot_us, event.boot_s().map(micros));
        let time_us = event.time().map(time_of_day_us);
        self.start_us = self.start_us.or(time_us);
        match event {
            Event::Run(started) => {
                self.setup = started.clone();
                self.is_started = true;
            }
            Event::Batch(batch) => self.add_batch(batch),
            Event::Done(done) => {
                // A stop cuts off a batch that is computed: its time is not idle, and nobody knows its tokens.
                if done.outcome != Outcome::Stopped {
                    (self.elapsed_s, self.cpu_s) = (Some(done.elapsed_s), done.cpu_s);
                }
                self.total = done.total.clone().unwrap_or(mem::take(&mut self.total));
                self.done = Some(done.clone());
            }
            Event::Probe(_) | Event::Unknown => {}
        }
    }

    fn add_batch(&mut self, batch: &BatchDone) {
        let is_known = match &batch.total {
            Some(total) => total.batches <= self.total.batches,
            None => batch.elapsed_s.is_some() && batch.elapsed_s <= self.elapsed_s,
        };
        if is_known {
            return;
        }
        let before = mem::take(&mut self.total);
        let total = batch.total.clone();
        self.total = total.unwrap_or_else(|| before + Totals::from(batch));
        // The tokens were computed since the previous batch.
        let (from_s, tokens) = self.last_batch;
        if let Some(at_s) = batch.elapsed_s.filter(|&at_s| at_s > from_s) {
            let new = self.total.tokens.saturating_sub(tokens);
            self.rate.add(from_s, at_s, new as f64 / (at_s - from_s));
            self.last_batch = (at_s, self.total.tokens);
        }
        let times = [self.elapsed_s, batch.elapsed_s];
        self.elapsed_s = times.into_iter().flatten().reduce(f64::max);
        self.cpu_s = batch.cpu_s.or(self.cpu_s);
    }

    /// Returns its name for people: those of its sample and of what it writes, or else of its log.
    pub(super) fn name(&self) -> String {
        let RunStarted {
            run,
            sample,
            output,
            ..
        } = &self.setup;
        let of_log = is_run_id(run) && !self.log.is_empty();
        let own = if of_log { &self.log } else { run };
        let output = output
            .as_deref()
            .map(|name| name.trim_end_matches(".parquet"));
        let names = sample.as_deref().into_iter().chain([output.unwrap_or(own)]);
        names.collect::<Vec<_>>().join("/")
    }

    /// Returns the GPUs that it names, each once with its product.
    pub(super) fn gpus(&self) -> Vec<(Option<&String>, Option<&String>)> {
        let uuids: Vec<&String> = self.setup.gpu_uuids.iter().flatten().collect();
        let names: Vec<&String> = self.setup.gpu_names.iter().flatten().collect();
        let mut known = BTreeSet::new();
        let all = (0..uuids.len().max(names.len()))
            .map(|place| (uuids.get(place).copied(), names.get(place).copied()));
        all.filter(|(uuid, _)| uuid.is_none_or(|uuid| known.insert(uuid)))
            .collect()
    }

    /// Returns the number of its GPUs, 0 on a CPU; `None` if it is unknown.
    pub(super) fn gpu_count(&self) -> Option<usize> {
        match (self.setup.device.as_deref()?, self.gpus().len()) {
            ("cpu", _) => Some(0),
            (device, 0) => device.starts_with("cuda:").then_some(1),
            (_, gpus) => Some(gpus),
        }
    }

    /// Returns when it ended, or its last known batch.
    pub(super) fn end(&self) -> Option<Timestamp> {
        let elapsed_ms = self.elapsed_s.unwrap_or(0.0) * 1000.0;
        let end_ms = self.setup.time?.unix_ms().checked_add(elapsed_ms as i64)?;
        DateTime::from_timestamp_millis(end_ms).map(Timestamp::from)
    }

    /// Returns the seconds of all devices together. All threads of a CPU are one device.
    pub(super) fn device_s(&self) -> Option<f64> {
        Some(self.elapsed_s.unwrap_or(0.0) * self.gpu_count()?.max(1) as f64)
    }

    /// Returns the hours of its GPUs, to the last known batch and with loading the model; `None` without a GPU.
    pub(super) fn gpu_hours(&self) -> Option<f64> {
        let gpus = self.gpu_count().filter(|&gpus| gpus > 0)?;
        Some((self.load_s()? + self.elapsed_s.unwrap_or(0.0)) * gpus as f64 / 3600.0)
    }

    /// Returns when it was at work: from its start, by the time of day, for its elapsed time.
    pub(super) fn work(&self) -> Option<Work> {
        let start_us = self.start_us?;
        let end_us = start_us + micros(self.elapsed_s.unwrap_or(0.0));
        Some((start_us..end_us, self.rate.clone()))
    }

    pub(super) fn load_s(&self) -> Option<f64> {
        Some(self.setup.load_ms? / 1000.0)
    }

    /// Returns the operations that its devices could have computed in its time: by a measured peak of each, in 1e12 operations a
    /// second, or by their names.
    pub(super) fn possible_flops(&self, peak_tflops: Option<f64>) -> Option<f64> {
        let peak = if let Some(tera) = peak_tflops {
            tera * 1e12 * self.gpu_count()?.max(1) as f64
        } else {
            let dtype = self.setup.dtype.as_deref()?.parse().ok()?;
            let gpus = Some(self.gpus()).filter(|gpus| !gpus.is_empty())?;
            let peaks = gpus
                .into_iter()
                .map(|(_, name)| devices::peak_flops_per_s(name?, dtype));
            peaks.sum::<Option<f64>>()?
        };
        let possible = peak * self.elapsed_s.unwrap_or(0.0);
        possible.is_finite().then_some(possible)
    }

    /// Returns the floating-point operations of its batches on real tokens, including attention. `None` if a part is unknown: a
    /// partial sum would be wrong.
    pub(super) fn flops(&self) -> Option<f64> {
        let total = &self.total;
        if total.batches == 0 {
            return Some(0.0);
        }
        let of_tokens = total.tokens as f64 * self.setup.flops_per_token? as f64;
        Some(of_tokens + total.pairs? as f64 * self.setup.flops_per_pair? as f64)
    }
}
