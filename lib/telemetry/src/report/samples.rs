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
    use plmkit_logs::Throttle;
    use plmkit_logs::event::{BatchDone, Event, RunStarted};

    fn sample(second: u32, index: Option<u32>, gpu_util: Option<u32>) -> GpuSample {
        let time = format!("2026-01-31T12:00:{second:02}Z");
        GpuSample {
            index,
            uuid: index.map(|index| format!("GPU-{index}")),
            gpu_util,
            host_cpu_util: Some(f64::from(second)),
            host_mem_used_mib: Some(1000 + u64::from(second)),
            ..GpuSample::at(time.parse().unwrap())
        }
    }

    fn summary(runs: Runs, samples: impl IntoIterator<Item = GpuSample>) -> SamplesSummary {
        let mut joined = Samples::during(&runs);
        samples.into_iter().for_each(|sample| joined.add(&sample));
        joined.finish(false, Some(&runs.finish(false)))
    }

    fn run(device: &str, gpu_uuid: Option<&str>, first: u32, last: u32) -> Runs {
        let time = |second: u32| format!("2026-01-31T12:00:{second:02}Z").parse().ok();
        let mut runs = Runs::default();
        runs.add(&Event::Run(RunStarted {
            run: "r".to_owned(),
            device: Some(device.to_owned()),
            gpu_uuids: gpu_uuid.map(|uuid| vec![uuid.to_owned()]),
            time: time(first),
            ..RunStarted::default()
        }));
        runs.add(&Event::Batch(BatchDone {
            run: "r".to_owned(),
            time: time(last),
            ..BatchDone::default()
        }));
        runs
    }

    #[test]
    fn samples_outside_the_run_do_not_count() {
        let busy_in_the_run = (0..30).map(|second| {
            let busy = (10..20).contains(&second);
            sample(second, Some(0), Some(if busy { 90 } else { 0 }))
        });
        let summary = summary(run("cuda:0", None, 10, 19), busy_in_the_run);
        assert_eq!((summary.scope, summary.gpus[0].samples), (Scope::Runs, 10));
        assert_eq!(summary.gpus[0].mean_utilization, Some(0.9));
        assert_eq!(summary.gpus[0].bottleneck, Some(Tier::None));
        assert_eq!(
            (summary.host.samples, summary.host.peak_mem_used_mib),
            (10, Some(1019))
        );
    }

    #[test]
    fn where_no_sample_falls_into_a_run_all_are_told_of_and_none_is_judged() {
        let summary = summary(
            run("cuda:0", None, 50, 59),
            (0..12).map(|s| sample(s, Some(0), Some(40))),
        );
        assert_eq!(
            (summary.scope, summary.gpus[0].samples),
            (Scope::Recording, 12)
        );
        assert_eq!(
            (summary.gpus[0].bottleneck, summary.gpus[0].in_run),
            (None, false)
        );
        assert!(summary.notes[0].starts_with("no sample was taken while"));
    }

    #[test]
    fn samples_of_other_gpus_than_the_run_names_are_told() {
        let notes = |uuid| {
            let rows = (0..12).map(|s| sample(s, Some(0), Some(40)));
            summary(run("cuda:0", Some(uuid), 0, 9), rows).notes
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
        let nine = summary(
            Runs::default(),
            (0..9).map(|s| sample(s, Some(0), Some(10))),
        );
        assert_eq!(
            (nine.gpus[0].bottleneck, nine.gpus[0].mean_utilization),
            (None, Some(0.1))
        );
        let unknown = summary(Runs::default(), (0..20).map(|s| sample(s, Some(0), None)));
        assert_eq!(
            (unknown.gpus[0].bottleneck, unknown.gpus[0].mean_utilization),
            (None, None)
        );
        assert_eq!(unknown.gpus[0].throttled_samples, None);
    }

    #[test]
    fn only_a_gpu_that_a_run_worked_on_is_judged() {
        let two =
            || (0..10).flat_map(|s| [sample(s, Some(0), Some(5)), sample(s, Some(1), Some(70))]);
        let tiers = |runs| {
            let gpus = summary(runs, two()).gpus;
            [gpus[0].bottleneck, gpus[1].bottleneck]
        };
        assert_eq!(
            tiers(run("cuda:0", Some("GPU-1"), 0, 9)),
            [None, Some(Tier::Mild)]
        );
        assert_eq!(
            tiers(run("cuda:0", None, 0, 9)),
            [Some(Tier::Critical), Some(Tier::Mild)]
        );
        assert_eq!(tiers(run("cpu", None, 0, 9)), [None, None]);
        assert_eq!(
            tiers(Runs::default()),
            [Some(Tier::Critical), Some(Tier::Mild)]
        );
    }

    #[test]
    fn the_host_counts_once_a_moment_and_is_no_gpu() {
        let rows = [
            sample(0, Some(0), None),
            sample(0, Some(1), None),
            sample(10, None, None),
        ];
        let summary = summary(Runs::default(), rows);
        assert_eq!(
            (summary.host.samples, summary.host.mean_cpu_utilization),
            (2, Some(0.05))
        );
        assert_eq!(summary.gpus.len(), 2);
    }

    #[test]
    fn throttled_samples_are_counted_among_those_that_say() {
        let throttle =
            |names: &[&str]| Some(Throttle(names.iter().map(ToString::to_string).collect()));
        let rows = [throttle(&[]), throttle(&["hw_slowdown"]), None]
            .into_iter()
            .enumerate();
        let rows = rows.map(|(second, throttle)| GpuSample {
            throttle,
            ..sample(second as u32, Some(0), None)
        });
        assert_eq!(
            summary(Runs::default(), rows).gpus[0].throttled_samples,
            Some(1)
        );
    }
}
