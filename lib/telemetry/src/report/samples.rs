//! The GPUs and the host of a sample log.

use std::ops::Range;

use plmkit_logs::GpuSample;
use serde::Serialize;

use super::bins::Bins;
use super::gpus::{GpuCount, GpuSummary};
use super::host::{HostCount, HostSummary};
use super::run::RunSummary;
use super::run_gpu::{RunGpu, find_gpu, run_gpus, worked_on};
use super::runs::{Runs, RunsSummary};
use super::time_axis::TimeAxis;
use super::time_span::TimeSpans;

/// GPUs whose utilisation is drawn; more lines than that cannot be told apart.
const MOST_LINES: usize = 16;

/// Runs that a note is made of, one each.
const MOST_NAMED: usize = 8;

/// Seconds of the finest line.
const FINEST_S: f64 = 0.5;

/// GPUs and host over the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SamplesSummary {
    /// Whether the log ends in a torn line, which was left out.
    pub torn_last_line: bool,
    /// Which samples count.
    pub scope: Scope,
    /// The GPUs.
    pub gpus: Vec<GpuSummary>,
    /// The host.
    pub host: HostSummary,
    /// What else should be known.
    pub notes: Vec<String>,
    /// The GPUs of each run; `None` where nothing tells which.
    #[serde(skip)]
    pub(super) by_run: Vec<Option<Vec<RunGpu>>>,
    /// What is drawn.
    #[serde(skip)]
    pub(super) pictures: SamplesPictures,
}

/// Which samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Those that fall into a run.
    Runs,
    /// All of them: no run is known, or none falls into one; then they count for no verdict.
    Recording,
}

/// What is drawn of the samples, over the seconds of all recordings, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SamplesPictures {
    /// Utilisation of each GPU, 0 to 1, by the driver's number of it.
    pub(super) utilization: Vec<(Option<u32>, Bins)>,
    /// When runs were at work.
    pub(super) spans_s: Vec<Range<f64>>,
}

/// Sums over samples, joined with runs.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    spans: TimeSpans,
    axis: TimeAxis,
    lines: Vec<Bins>,
    all: Count,
    /// Samples of the time of any run.
    inside: Count,
    /// Samples of the time of each run.
    by_run: Vec<Count>,
}

/// Sums over some of the samples.
#[derive(Clone, Debug, Default)]
struct Count {
    samples: u64,
    gpus: Vec<GpuCount>,
    host: HostCount,
    /// Where the samples lie on the axis.
    span_s: Option<Range<f64>>,
}

impl Count {
    /// Adds a sample that lies at `at_s` on the axis; the position of its GPU, if it is of one.
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
    /// No samples yet, to be joined with `runs`.
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
            if gpu == self.lines.len() && gpu < MOST_LINES {
                self.lines.push(Bins::new(FINEST_S));
            }
            if let Some((line, percent)) = self.lines.get_mut(gpu).zip(sample.gpu_util) {
                line.add(at_s, f64::from(percent) / 100.0);
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

    /// What the samples say; `events` tells which GPUs the runs worked on.
    pub fn finish(mut self, torn_last_line: bool, events: Option<&RunsSummary>) -> SamplesSummary {
        let runs = events.map_or(&[][..], |events| &events.runs);
        self.by_run.resize_with(runs.len(), Count::default);
        let gpus_of_runs = runs.iter().zip(&self.by_run);
        let gpus_of_runs =
            gpus_of_runs.map(|(run, during)| run_gpus(run, &self.all.gpus, &during.gpus));
        // Those of another day would judge runs that they say nothing of.
        let elsewhere = self.inside.samples == 0 && self.all.samples > 0 && self.spans.are_known();
        let (scope, count) = if self.inside.samples == 0 {
            (Scope::Recording, self.all.clone())
        } else {
            (Scope::Runs, self.inside)
        };
        let gpus = count.gpus.into_iter().map(|gpu| {
            let in_run =
                !elsewhere && events.is_none_or(|events| worked_on(events, gpu.uuid.as_deref()));
            let same = |other: &&GpuCount| (&other.uuid, other.index) == (&gpu.uuid, gpu.index);
            let recording = self.all.gpus.iter().find(same).cloned();
            gpu.finish(in_run, &recording.unwrap_or_default())
        });
        let indices = self.all.gpus.iter().map(|gpu| gpu.index);
        SamplesSummary {
            torn_last_line,
            scope,
            gpus: gpus.collect(),
            host: count.host.finish(),
            notes: notes(runs, &self.all, elsewhere),
            by_run: gpus_of_runs.collect(),
            pictures: SamplesPictures {
                utilization: indices.zip(self.lines).collect(),
                spans_s: self
                    .by_run
                    .iter()
                    .filter_map(|count| count.span_s.clone())
                    .collect(),
            },
        }
    }
}

/// Why figures of `runs` are not known, where the samples are not theirs.
fn notes(runs: &[RunSummary], all: &Count, elsewhere: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if elsewhere {
        notes.push(
            "no sample was taken while a run was at work: none counts for the verdict".to_owned(),
        );
    }
    let uuids = |run: &RunSummary| run.gpu_uuids.clone().unwrap_or_default();
    let strange = runs.iter().filter(|run| {
        let uuids = uuids(run);
        let known = |uuid: &String| find_gpu(&all.gpus, uuid).is_some();
        !uuids.is_empty() && all.samples > 0 && !uuids.iter().any(known)
    });
    for run in strange.take(MOST_NAMED) {
        notes.push(format!(
            "run {}: the samples are of other GPUs than {}: its energy is not known, nor is its MFU without --peak-tflops",
            run.run,
            uuids(run).join(", ")
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::Tier;
    use super::*;
    use crate::tests::{batch, report, runs, sample, started};

    /// 10 s of the GPUs `GPU-0` and up, each with its utilisation.
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
        let summary = summary(run("cuda:0", None, 10, 19), samples(busy, 30));
        let gpu = &summary.gpus[0];
        assert_eq!((summary.scope, gpu.samples), (Scope::Runs, 10));
        assert_eq!(
            (gpu.mean_utilization, gpu.bottleneck),
            (Some(0.9), Some(Tier::None))
        );
        assert_eq!(
            (summary.host.samples, summary.host.peak_mem_used_mib),
            (10, Some(1019))
        );
    }

    #[test]
    fn where_no_sample_falls_into_a_run_all_are_told_of_and_none_is_judged() {
        let summary = summary(run("cuda:0", None, 50, 59), samples(|_| vec![Some(40)], 12));
        let gpu = &summary.gpus[0];
        assert_eq!((summary.scope, gpu.samples), (Scope::Recording, 12));
        assert_eq!((gpu.bottleneck, gpu.in_run), (None, false));
        assert!(summary.notes[0].starts_with("no sample was taken while"));
    }

    #[test]
    fn samples_of_other_gpus_than_the_run_names_are_told() {
        let notes = |uuid| {
            summary(
                run("cuda:0", Some(uuid), 0, 9),
                samples(|_| vec![Some(40)], 12),
            )
            .notes
        };
        assert_eq!(notes("GPU-0"), [""; 0]);
        let other = notes("GPU-9");
        assert!(
            other[0].starts_with("run r: the samples are of other GPUs than GPU-9"),
            "{other:?}"
        );
    }

    #[test]
    fn too_few_samples_and_unknown_utilization_give_no_tier() {
        let found = |percent, seconds| {
            let gpu = summary(Runs::default(), samples(|_| vec![percent], seconds))
                .gpus
                .remove(0);
            (gpu.bottleneck, gpu.mean_utilization, gpu.throttled_samples)
        };
        assert_eq!(found(Some(10), 9), (None, Some(0.1), None));
        assert_eq!(found(None, 20), (None, None, None));
    }

    #[test]
    fn only_a_gpu_that_a_run_worked_on_is_judged() {
        let tiers = |runs| {
            let gpus = summary(runs, samples(|_| vec![Some(5), Some(70)], 10)).gpus;
            [gpus[0].bottleneck, gpus[1].bottleneck]
        };
        let both = [Some(Tier::Critical), Some(Tier::Mild)];
        assert_eq!(
            tiers(run("cuda:0", Some("GPU-1"), 0, 9)),
            [None, Some(Tier::Mild)]
        );
        assert_eq!(tiers(run("cuda:0", None, 0, 9)), both);
        assert_eq!(tiers(run("cpu", None, 0, 9)), [None, None]);
        assert_eq!(tiers(Runs::default()), both);
    }

    #[test]
    fn the_host_counts_once_a_moment_and_is_no_gpu() {
        let mut rows = samples(|_| vec![None, None], 1);
        rows.push(GpuSample {
            host_cpu_util: Some(10.0),
            ..GpuSample::at("2026-01-31T12:00:10Z".parse().unwrap())
        });
        let summary = summary(Runs::default(), rows);
        assert_eq!(
            (summary.host.samples, summary.host.mean_cpu_utilization),
            (2, Some(0.05))
        );
        assert_eq!(summary.gpus.len(), 2);
    }
}
