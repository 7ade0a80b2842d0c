//! The GPUs and the host of a sample log.

use std::collections::BTreeMap;
use std::ops::Range;

use plmkit_logs::GpuSample;
use serde::Serialize;

use super::coverage::is_enough;
use super::gpus::{GpuRows, GpuSummary};
use super::host::{HostRows, HostSummary};
use super::percent;
use super::pictures::GpuPictures;
use super::run::RunSummary;
use super::run_gpu::{RunGpu, find_gpu, run_gpus};
use super::runs::{Runs, RunsSummary};
use super::time_axis::TimeAxis;
use super::time_span::WorkTimes;

/// GPUs with charts, the first of a log. Charts take memory.
const MAX_PICTURES: usize = 16;

/// Runs with a note about their GPUs.
const MAX_NOTES: usize = 8;

/// GPUs and host over the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SamplesSummary {
    /// Whether the log ends with a torn line, which was left out.
    pub torn_last_line: bool,
    /// Which samples count.
    pub scope: Scope,
    /// The GPUs.
    pub gpus: Vec<GpuSummary>,
    /// The host.
    pub host: HostSummary,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// The GPUs of each run; `None` if unknown.
    #[serde(skip)]
    pub(super) by_run: Vec<Option<Vec<RunGpu>>>,
    /// Chart data.
    #[serde(skip)]
    pub(super) pictures: SamplesPictures,
}

/// Which samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Samples that were taken during a run.
    Runs,
    /// All samples: no run is known, or no sample was taken during one. In the second case they count for no verdict.
    Recording,
}

/// Chart data of the samples, over the seconds of all recordings in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SamplesPictures {
    /// The first GPUs.
    pub(super) gpus: Vec<GpuPictures>,
    /// When runs were at work.
    pub(super) spans_s: Vec<Range<f64>>,
}

/// Sums over samples, joined with runs.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    times: WorkTimes,
    axis: TimeAxis,
    pictures: Vec<GpuPictures>,
    rows: u64,
    gpus: Vec<GpuRows>,
    host: HostRows,
    /// The extent of the rows during each run on the time axis.
    spans_s: BTreeMap<usize, Range<f64>>,
}

impl Samples {
    /// Starts without samples. They will be joined with `runs`.
    pub fn during(runs: &Runs) -> Self {
        Self {
            times: runs.work_times(),
            ..Self::default()
        }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &GpuSample) {
        self.rows += 1;
        let moment = self.times.place(sample);
        let at_s = self.axis.place(moment, sample.interval_s);
        self.host.add(sample, moment, &self.times);
        if sample.index.is_some() || sample.uuid.is_some() {
            let gpu = self.gpu_of(sample);
            self.gpus[gpu].add(sample, moment, &self.times);
            if let Some(pictures) = self.pictures.get_mut(gpu) {
                pictures.add(at_s, sample);
            }
        }
        let around = moment.at_us - 1..moment.at_us + 1;
        for (_, work) in self.times.parts(moment.clock, around) {
            for work in work {
                self.spans_s.entry(work.run).or_insert(at_s..at_s).end = at_s;
            }
        }
    }

    /// Returns the position of the GPU of a sample.
    fn gpu_of(&mut self, sample: &GpuSample) -> usize {
        let known = self.gpus.iter().position(|gpu| gpu.is_of(sample));
        known.unwrap_or_else(|| {
            if self.pictures.len() < MAX_PICTURES {
                self.pictures.push(GpuPictures::new());
            }
            self.gpus.push(GpuRows::default());
            self.gpus.len() - 1
        })
    }

    /// Completes the summary. `events` tells which GPUs the runs used.
    pub fn finish(mut self, torn_last_line: bool, events: Option<&RunsSummary>) -> SamplesSummary {
        let times = &self.times;
        self.host.flush(times);
        self.gpus.iter_mut().for_each(|gpu| gpu.flush(times));
        let runs = events.map_or(&[][..], |events| &events.runs);
        let by_run = runs.iter().enumerate();
        let by_run = by_run.map(|(position, run)| run_gpus(run, position, &self.gpus, times));
        let is_whole = !self.host.is_inside();
        let whole = is_whole.then(|| (Scope::Recording, self.axis.end_us()));
        let (scope, recorded_us) = whole.unzip();
        // Samples from outside all runs must not judge the runs.
        let elsewhere = is_whole && self.rows > 0 && times.are_known();
        let gpus = self.gpus.iter().map(|rows| {
            let is_used = times.is_empty() || times.are_on(rows.gpu.uuid.as_deref());
            let in_run = !elsewhere && is_used;
            let clocks = rows.clocks();
            let recorded_us = || clocks.map(|clock| self.axis.recorded_us(clock)).sum();
            rows.finish(in_run, is_whole.then(recorded_us), times)
        });
        let gpus: Vec<GpuSummary> = gpus.collect();
        let mut notes = notes(runs, &self.gpus, elsewhere);
        if is_whole {
            notes.extend(gpus.iter().filter_map(coverage_note).take(MAX_NOTES));
        }
        SamplesSummary {
            torn_last_line,
            scope: scope.unwrap_or(Scope::Runs),
            host: self.host.finish(recorded_us, times),
            notes,
            by_run: by_run.collect(),
            pictures: SamplesPictures {
                gpus: self.pictures,
                spans_s: self.spans_s.into_values().collect(),
            },
            gpus,
        }
    }
}

/// Explains the figures of a GPU that was not seen for all of a recording.
fn coverage_note(gpu: &GpuSummary) -> Option<String> {
    let coverage = gpu.coverage.filter(|_| gpu.partial)?;
    let effect = if is_enough(gpu.coverage) {
        "its figures are of that part"
    } else {
        "too little for its figures"
    };
    let (name, share) = (gpu.label(), percent(coverage));
    Some(format!(
        "{name}: its samples cover {share} of the recording, {effect}"
    ))
}

/// Explains why figures of `runs` are unknown, if the samples are not theirs.
fn notes(runs: &[RunSummary], gpus: &[GpuRows], elsewhere: bool) -> Vec<String> {
    let outside = "no sample was taken while a run was at work: none counts for the verdict";
    let unknown = runs.iter().filter_map(|run| {
        let uuids = run.gpu_uuids.as_ref().filter(|uuids| !uuids.is_empty())?;
        if gpus.is_empty() || uuids.iter().any(|uuid| find_gpu(gpus, uuid).is_some()) {
            return None;
        }
        let (run, uuids) = (&run.run, uuids.join(", "));
        Some(format!(
            "run {run}: the samples are of other GPUs than {uuids}: its energy is not known, nor is its MFU without --peak-tflops"
        ))
    });
    let outside = elsewhere.then(|| outside.to_owned()).into_iter();
    outside.chain(unknown.take(MAX_NOTES)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Tier;
    use super::*;
    use crate::tests::{batch, report, runs, sample, started};

    /// A sample a second of the GPUs `GPU-0` and up, each with its utilisation.
    fn samples(percent: impl Fn(u32) -> Vec<Option<u32>>, seconds: u32) -> Vec<GpuSample> {
        let rows = (0..seconds).flat_map(|second| {
            let gpus = percent(second).into_iter().enumerate();
            gpus.map(move |(gpu, percent)| {
                sample(second, |sample| {
                    (sample.index, sample.gpu_util) = (Some(gpu as u32), percent);
                    sample.uuid = Some(format!("GPU-{gpu}"));
                    sample.host_cpu_util = Some(f64::from(second));
                    sample.host_mem_used_mib = Some(1000 + u64::from(second));
                })
            })
        });
        rows.collect()
    }

    fn summary(runs: Runs, samples: Vec<GpuSample>) -> SamplesSummary {
        report(runs, samples).samples.unwrap()
    }

    fn run(device: &str, gpu_uuid: Option<&str>, first: u32, last: u32) -> Runs {
        let time = |second: u32| format!("2026-01-31T12:00:{second:02}Z").parse().ok();
        let started = started(|run| {
            run.device = Some(device.to_owned());
            run.gpu_uuids = gpu_uuid.map(|uuid| vec![uuid.to_owned()]);
            run.time = time(first);
        });
        runs([started, batch(0, |batch| batch.time = time(last))])
    }

    #[test]
    fn samples_outside_the_run_do_not_count() {
        let busy = |second| vec![Some(if (11..21).contains(&second) { 90 } else { 0 })];
        let found = summary(run("cuda:0", None, 10, 20), samples(busy, 30));
        let gpu = &found.gpus[0];
        assert_eq!((found.scope, gpu.samples), (Scope::Runs, 10));
        let tier = Some(Tier::None);
        assert_eq!((gpu.mean_utilization, gpu.bottleneck), (Some(0.9), tier));
        let host = &found.host;
        assert_eq!((host.samples, host.peak_mem_used_mib), (10, Some(1020)));
        assert_eq!((host.coverage, gpu.coverage), (Some(1.0), Some(1.0)));

        let elsewhere = summary(run("cuda:0", None, 50, 59), samples(|_| vec![Some(40)], 12));
        let gpu = &elsewhere.gpus[0];
        assert_eq!((elsewhere.scope, gpu.samples), (Scope::Recording, 11));
        assert_eq!((gpu.bottleneck, gpu.in_run), (None, false));
        assert!(elsewhere.notes[0].starts_with("no sample was taken while"));
    }

    #[test]
    fn samples_of_other_gpus_than_the_run_names_are_noted() {
        let notes = |uuid| {
            let run = run("cuda:0", Some(uuid), 0, 9);
            summary(run, samples(|_| vec![Some(40)], 12)).notes
        };
        assert_eq!(notes("GPU-0"), [""; 0]);
        let note = "run r: the samples are of other GPUs than GPU-9";
        assert!(notes("GPU-9")[0].starts_with(note));
    }

    #[test]
    fn only_a_gpu_that_a_run_used_is_judged_with_enough_known_samples() {
        let tiers = |runs, utilization: [Option<u32>; 2], seconds| {
            let gpus = summary(runs, samples(|_| utilization.to_vec(), seconds)).gpus;
            [gpus[0].bottleneck, gpus[1].bottleneck]
        };
        let (critical, mild) = (Some(Tier::Critical), Some(Tier::Mild));
        let two = [Some(5), Some(70)];
        let named = run("cuda:0", Some("GPU-1"), 0, 10);
        assert_eq!(tiers(named, two, 11), [None, mild]);
        let unnamed = || run("cuda:0", None, 0, 10);
        assert_eq!(tiers(unnamed(), two, 11), [critical, mild]);
        assert_eq!(tiers(run("cpu", None, 0, 10), two, 11), [None, None]);
        assert_eq!(tiers(Runs::default(), two, 11), [critical, mild]);
        assert_eq!(tiers(Runs::default(), two, 10), [None, None]);
        assert_eq!(tiers(Runs::default(), [None, Some(70)], 20), [None, mild]);
    }

    #[test]
    fn the_host_counts_once_a_moment_and_is_no_gpu() {
        let mut rows = samples(|_| vec![None, None], 3);
        rows.push(sample(10, |sample| {
            (sample.index, sample.uuid) = (None, None);
            sample.host_cpu_util = Some(10.0);
        }));
        let summary = summary(Runs::default(), rows);
        let host = &summary.host;
        // 1 % and 2 % for a second each; the last row follows a gap of 8 s.
        assert_eq!((host.samples, host.coverage), (2, Some(0.2)));
        assert_eq!((host.partial, host.mean_cpu_utilization), (true, None));
        assert_eq!(summary.gpus.len(), 2);
    }
}
