//! The GPUs and the host of a sample log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;

use super::bins::Bins;
use super::count::Count;
use super::gpus::GpuSummary;
use super::health::HealthCount;
use super::host::HostSummary;
use super::join::{Cell, join};
use super::recordings::Recordings;
use super::run::RunSummary;
use super::run_gpu::RunGpu;
use super::runs::{Runs, RunsSummary};
use super::windows::Windows;
use super::worked_on::{gpus_of, works_on};
use crate::GpuSample;

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
    /// Which samples were taken.
    pub window: Window,
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

/// Which samples were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Window {
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

/// Takes in samples.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    windows: Windows,
    recordings: Recordings,
    all: Count,
    /// Of each GPU of `all`, in the same order.
    health: Vec<HealthCount>,
    lines: Vec<Bins>,
    cells: BTreeMap<Cell, Count>,
}

impl Samples {
    /// Samples to be joined with `runs`.
    pub fn during(runs: &Runs) -> Self {
        Self {
            windows: Windows::of(runs),
            ..Self::default()
        }
    }

    /// Takes in a sample.
    pub fn add(&mut self, sample: &GpuSample) {
        let place = self.recordings.place(sample);
        if let Some(gpu) = self.all.add(sample, place) {
            if gpu == self.health.len() {
                self.health.push(HealthCount::default());
                self.lines
                    .extend((gpu < MOST_LINES).then(|| Bins::new(FINEST_S)));
            }
            self.health[gpu].add(sample, place);
            if let Some((line, percent)) = self.lines.get_mut(gpu).zip(sample.gpu_util) {
                line.add(place.at_s, f64::from(percent) / 100.0);
            }
        }
        if let Some(interval) = self.windows.interval(sample.timestamp.unix_ms()) {
            let cell = (interval, place.recording, place.stretch);
            self.cells.entry(cell).or_default().add(sample, place);
        }
    }

    /// What the samples say; `events` tells which GPUs the runs worked on.
    pub fn finish(self, torn_last_line: bool, events: Option<&RunsSummary>) -> SamplesSummary {
        let runs = events.map_or(&[][..], |events| &events.runs);
        let windows = self.windows.runs.iter().enumerate();
        let joined = windows.map(|(position, windows)| {
            let uuids = runs.get(position).and_then(|run| run.gpu_uuids.as_deref());
            join(
                windows,
                uuids.unwrap_or_default(),
                &self.cells,
                &self.recordings,
            )
        });
        let joined: Vec<BTreeSet<Cell>> = joined.collect();
        let during = |cells: &BTreeSet<Cell>| {
            let mut count = Count::default();
            for cell in cells {
                count.merge(&self.cells[cell]);
            }
            count
        };
        let by_run = runs.iter().enumerate().map(|(position, run)| {
            let cells = joined.get(position);
            gpus_of(run, &self.all, &cells.map(during).unwrap_or_default())
        });
        let by_run = by_run.collect();
        // A sample in two runs at once counts once.
        let inside = during(&joined.iter().flatten().copied().collect());
        // Those of another day would judge runs that they say nothing of.
        let elsewhere = inside.samples == 0 && self.all.samples > 0 && self.windows.are_known();
        let notes = notes(runs, &self.all, elsewhere);
        let (window, count) = if inside.samples == 0 {
            (Window::Recording, self.all.clone())
        } else {
            (Window::Runs, inside)
        };
        let spans_s = joined
            .iter()
            .flat_map(|cells| spans_s(cells, &self.cells))
            .collect();
        let indices = self.all.gpus.iter().map(|(_, gpu)| gpu.index);
        let utilization = indices.zip(self.lines).collect();
        let host = count.host.finish();
        let gpus = count.gpus.into_iter().map(|(key, gpu)| {
            let in_run =
                !elsewhere && events.is_none_or(|events| works_on(events, gpu.uuid.as_deref()));
            let health = self.all.position(&key).and_then(|gpu| self.health.get(gpu));
            let health = health.map(|health| health.finish(&self.recordings));
            gpu.finish(in_run, health.unwrap_or_default())
        });
        SamplesSummary {
            torn_last_line,
            window,
            gpus: gpus.collect(),
            host,
            notes,
            by_run,
            pictures: SamplesPictures {
                utilization,
                spans_s,
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
        let known = |uuid: &String| all.by_uuid(uuid).is_some();
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

/// When a run was at work, in seconds of all recordings: a span for each recording.
fn spans_s(of: &BTreeSet<Cell>, cells: &BTreeMap<Cell, Count>) -> Vec<Range<f64>> {
    let mut spans: BTreeMap<usize, Range<f64>> = BTreeMap::new();
    for cell in of {
        if let Some((from_s, to_s)) = cells[cell].span_s {
            let span = spans.entry(cell.1).or_insert(from_s..to_s);
            *span = span.start.min(from_s)..span.end.max(to_s);
        }
    }
    spans.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::Tier;
    use super::*;
    use crate::Throttle;
    use crate::event::{BatchDone, Event, RunStarted};

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
        runs.add(Event::Run(RunStarted {
            run: "r".to_owned(),
            device: Some(device.to_owned()),
            gpu_uuids: gpu_uuid.map(|uuid| vec![uuid.to_owned()]),
            time: time(first),
            ..RunStarted::default()
        }));
        runs.add(Event::Batch(BatchDone {
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
        assert_eq!(
            (summary.window, summary.gpus[0].samples),
            (Window::Runs, 10)
        );
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
            (summary.window, summary.gpus[0].samples),
            (Window::Recording, 12)
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
