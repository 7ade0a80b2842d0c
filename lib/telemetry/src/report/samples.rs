//! The GPUs and the host of a sample log.

use serde::Serialize;

use super::gpus::{GpuCount, GpuSummary};
use super::host::{HostCount, HostSummary};
use super::runs::{Runs, RunsSummary};
use crate::{GpuSample, Timestamp};

/// GPUs and host over the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SamplesSummary {
    /// Whether the log ends in a torn line, which was left out.
    pub torn_last_line: bool,
    /// Which samples were taken.
    pub window: Window,
    /// The GPUs.
    pub gpus: Vec<GpuSummary>,
    /// The host.
    pub host: HostSummary,
}

/// Which samples were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// Those that fall into a run.
    Runs,
    /// All of them: no run is known, or none falls into one.
    Recording,
}

/// Takes in samples.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    windows: Vec<(Timestamp, Timestamp)>,
    inside: Count,
    all: Count,
}

#[derive(Clone, Debug, Default)]
struct Count {
    gpus: Vec<(GpuKey, GpuCount)>,
    host: HostCount,
}

/// A GPU is known by its lasting name; its number stands in where the driver gives none.
type GpuKey = (Option<String>, Option<u32>);

impl Samples {
    /// Samples to be joined with `runs`.
    pub fn during(runs: &Runs) -> Self {
        Self {
            windows: runs.seen(),
            ..Self::default()
        }
    }

    /// Takes in a sample.
    pub fn add(&mut self, sample: &GpuSample) {
        self.all.add(sample);
        if self
            .windows
            .iter()
            .any(|(first, last)| (first..=last).contains(&&sample.timestamp))
        {
            self.inside.add(sample);
        }
    }

    /// What the samples say; `events` tells which GPUs the runs worked on.
    pub fn finish(self, torn_last_line: bool, events: Option<&RunsSummary>) -> SamplesSummary {
        let (window, count) = if self.inside.host.is_empty() {
            (Window::Recording, self.all)
        } else {
            (Window::Runs, self.inside)
        };
        let gpus = count.gpus.into_iter().map(|((uuid, _), gpu)| {
            let in_run = events.is_none_or(|events| works_on(events, uuid.as_deref()));
            gpu.finish(in_run)
        });
        SamplesSummary {
            torn_last_line,
            window,
            gpus: gpus.collect(),
            host: count.host.finish(),
        }
    }
}

impl Count {
    fn add(&mut self, sample: &GpuSample) {
        self.host.add(sample);
        if sample.index.is_none() && sample.uuid.is_none() {
            return;
        }
        let number = if sample.uuid.is_none() {
            sample.index
        } else {
            None
        };
        let known = self
            .gpus
            .iter_mut()
            .find(|((uuid, index), _)| *uuid == sample.uuid && *index == number);
        if let Some((_, gpu)) = known {
            gpu.add(sample);
        } else {
            let mut gpu = GpuCount::default();
            gpu.add(sample);
            self.gpus.push(((sample.uuid.clone(), number), gpu));
        }
    }
}

/// Whether a run worked on the GPU `uuid`, as far as is known.
fn works_on(events: &RunsSummary, uuid: Option<&str>) -> bool {
    let on_gpus = || {
        events
            .runs
            .iter()
            .filter(|run| run.device.as_deref() != Some("cpu"))
    };
    let named = on_gpus().any(|run| run.gpu_uuids.is_some());
    if named {
        uuid.is_some_and(|uuid| {
            let theirs = on_gpus().filter_map(|run| run.gpu_uuids.as_ref());
            theirs.flatten().any(|theirs| theirs == uuid)
        })
    } else {
        events.runs.is_empty() || on_gpus().next().is_some()
    }
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
    fn where_no_sample_falls_into_a_run_all_count() {
        let summary = summary(
            run("cuda:0", None, 50, 59),
            (0..12).map(|s| sample(s, Some(0), Some(40))),
        );
        assert_eq!(
            (summary.window, summary.gpus[0].samples),
            (Window::Recording, 12)
        );
        assert_eq!(summary.gpus[0].bottleneck, Some(Tier::Critical));
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
