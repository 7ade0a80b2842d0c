//! The GPUs and the host of a sample log.

use std::ops::Range;

use plmkit_logs::GpuSample;
use serde::Serialize;

use super::gpus::{GpuCount, GpuSummary};
use super::host::{HostCount, HostSummary};
use super::pictures::GpuPictures;
use super::run::RunSummary;
use super::run_gpu::{RunGpu, find_gpu, run_gpus, was_used};
use super::runs::{Runs, RunsSummary};
use super::time_axis::TimeAxis;
use super::time_span::TimeSpans;

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
    /// The GPUs, with the driver's numbers of them.
    pub(super) gpus: Vec<(Option<u32>, GpuPictures)>,
    /// When runs were at work.
    pub(super) spans_s: Vec<Range<f64>>,
}

/// Sums over samples, joined with runs.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    spans: TimeSpans,
    axis: TimeAxis,
    pictures: Vec<GpuPictures>,
    all: Count,
    /// Samples that were taken during any run.
    inside: Count,
    /// Samples that were taken during each run.
    by_run: Vec<Count>,
}

/// Sums over some of the samples.
#[derive(Clone, Debug, Default)]
struct Count {
    samples: u64,
    gpus: Vec<GpuCount>,
    host: HostCount,
    /// The extent of the samples on the time axis.
    span_s: Option<Range<f64>>,
}

impl Count {
    /// Adds a sample at `at_s` on the time axis. Returns the position of its GPU, if it has one.
    fn add(&mut self, sample: &GpuSample, at_s: f64) -> Option<usize> {
        self.samples += 1;
        self.span_s.get_or_insert(at_s..at_s).end = at_s;
        self.host.add(sample);
        if sample.index.is_none() && sample.uuid.is_none() {
            return None;
        }
        let known = self.gpus.iter().position(|gpu| gpu.is_of(sample));
        let position = known.unwrap_or_else(|| {
            self.gpus.push(GpuCount::default());
            self.gpus.len() - 1
        });
        self.gpus[position].add(sample);
        Some(position)
    }
}

impl Samples {
    /// Starts without samples. They will be joined with `runs`.
    pub fn during(runs: &Runs) -> Self {
        Self {
            spans: runs.time_spans(),
            ..Self::default()
        }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &GpuSample) {
        let at_s = self.axis.place(sample);
        if let Some(gpu) = self.all.add(sample, at_s) {
            if gpu == self.pictures.len() && gpu < MAX_PICTURES {
                self.pictures.push(GpuPictures::default());
            }
            if let Some(pictures) = self.pictures.get_mut(gpu) {
                pictures.add(at_s, sample);
            }
        }
        let runs = self.spans.runs_at(sample);
        if !runs.is_empty() {
            self.inside.add(sample, at_s);
        }
        for run in runs {
            if self.by_run.len() <= run {
                self.by_run.resize_with(run + 1, Count::default);
            }
            self.by_run[run].add(sample, at_s);
        }
    }

    /// Completes the summary. `events` tells which GPUs the runs used.
    pub fn finish(mut self, torn_last_line: bool, events: Option<&RunsSummary>) -> SamplesSummary {
        let runs = events.map_or(&[][..], |events| &events.runs);
        self.by_run.resize_with(runs.len(), Count::default);
        let by_run = runs
            .iter()
            .zip(&self.by_run)
            .map(|(run, during)| run_gpus(run, &self.all.gpus, &during.gpus));
        // Samples from outside all runs must not judge the runs.
        let elsewhere = self.inside.samples == 0 && self.all.samples > 0 && self.spans.are_known();
        let (scope, count) = if self.inside.samples == 0 {
            (Scope::Recording, self.all.clone())
        } else {
            (Scope::Runs, self.inside)
        };
        let gpus = count.gpus.into_iter().map(|gpu| {
            let was_used = |events| was_used(events, gpu.summary.uuid.as_deref());
            let in_run = !elsewhere && events.is_none_or(was_used);
            let recording = self.all.gpus.iter().find(|other| other.is_same(&gpu));
            let recording = recording.cloned().unwrap_or_default();
            gpu.finish(in_run, &recording)
        });
        let indices = self.all.gpus.iter().map(|gpu| gpu.summary.index);
        let spans_s = self.by_run.iter().filter_map(|count| count.span_s.clone());
        SamplesSummary {
            torn_last_line,
            scope,
            gpus: gpus.collect(),
            host: count.host.finish(),
            notes: notes(runs, &self.all, elsewhere),
            by_run: by_run.collect(),
            pictures: SamplesPictures {
                gpus: indices.zip(self.pictures).collect(),
                spans_s: spans_s.collect(),
            },
        }
    }
}

/// Explains why figures of `runs` are unknown, if the samples are not theirs.
fn notes(runs: &[RunSummary], all: &Count, elsewhere: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if elsewhere {
        notes.push(
            "no sample was taken while a run was at work: none counts for the verdict".to_owned(),
        );
    }
    let named = runs
        .iter()
        .filter_map(|run| Some((run, run.gpu_uuids.as_ref()?)));
    let unknown = named.filter(|(_, uuids)| {
        let mut known = uuids.iter().map(|uuid| find_gpu(&all.gpus, uuid));
        !uuids.is_empty() && all.samples > 0 && known.all(|gpu| gpu.is_none())
    });
    for (run, uuids) in unknown.take(MAX_NOTES) {
        notes.push(format!(
            "run {}: the samples are of other GPUs than {}: its energy is not known, nor is its MFU without --peak-tflops",
            run.run,
            uuids.join(", ")
        ));
    }
    notes
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
        let busy = |second| vec![Some(if (10..20).contains(&second) { 90 } else { 0 })];
        let found = summary(run("cuda:0", None, 10, 19), samples(busy, 30));
        let gpu = &found.gpus[0];
        assert_eq!((found.scope, gpu.samples), (Scope::Runs, 10));
        let tier = Some(Tier::None);
        assert_eq!((gpu.mean_utilization, gpu.bottleneck), (Some(0.9), tier));
        let host = &found.host;
        assert_eq!((host.samples, host.peak_mem_used_mib), (10, Some(1019)));

        let elsewhere = summary(run("cuda:0", None, 50, 59), samples(|_| vec![Some(40)], 12));
        let gpu = &elsewhere.gpus[0];
        assert_eq!((elsewhere.scope, gpu.samples), (Scope::Recording, 12));
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
        let named = run("cuda:0", Some("GPU-1"), 0, 9);
        assert_eq!(tiers(named, two, 10), [None, mild]);
        let unnamed = || run("cuda:0", None, 0, 9);
        assert_eq!(tiers(unnamed(), two, 10), [critical, mild]);
        assert_eq!(tiers(run("cpu", None, 0, 9), two, 10), [None, None]);
        assert_eq!(tiers(Runs::default(), two, 10), [critical, mild]);
        assert_eq!(tiers(Runs::default(), two, 9), [None, None]);
        assert_eq!(tiers(Runs::default(), [None, Some(70)], 20), [None, mild]);
    }

    #[test]
    fn the_host_counts_once_a_moment_and_is_no_gpu() {
        let mut rows = samples(|_| vec![None, None], 1);
        rows.push(GpuSample {
            host_cpu_util: Some(10.0),
            ..GpuSample::at("2026-01-31T12:00:10Z".parse().unwrap())
        });
        let summary = summary(Runs::default(), rows);
        let host = &summary.host;
        assert_eq!((host.samples, host.mean_cpu_utilization), (2, Some(0.05)));
        assert_eq!(summary.gpus.len(), 2);
    }
}
