//! The GPUs of a sample log.

use std::collections::HashMap;

use plmkit_logs::GpuSample;

use super::gpu::{GpuRows, GpuSummary, RunGpu};
use super::run::RunSummary;
use super::runs::Runs;
use super::times::WorkTimes;
use super::values::Values;

/// Why a run has no figures from samples.
const APART: &str = "it is not joined with the samples: they are of another boot or machine, whose clock may differ, or \
    only one of both names its boot; --clocks-agree joins them by the time of day";

/// Why a run has no energy.
const UNNAMED: &str = "its energy and its utilization are unknown: it does not name its GPUs, and the samples are of several";

/// Sums over samples, joined with runs.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    times: WorkTimes,
    /// The GPUs, and their positions by UUID.
    gpus: Vec<GpuRows>,
    by_uuid: HashMap<String, usize>,
}

impl Samples {
    /// Starts without samples. They will be joined with `runs`.
    pub fn during(runs: &Runs) -> Self {
        Self {
            times: runs.work_times(),
            ..Self::default()
        }
    }

    /// Adds a sample. One without a UUID is of the host alone, and counts for nothing.
    pub fn add(&mut self, sample: &GpuSample) {
        let moment = self.times.place(sample);
        let Some(uuid) = &sample.uuid else { return };
        let (times, gpus) = (&mut self.times, &mut self.gpus);
        let gpu = self.by_uuid.get(uuid).copied().unwrap_or_else(|| {
            gpus.push(GpuRows::new(uuid, times));
            self.by_uuid.insert(uuid.clone(), gpus.len() - 1);
            gpus.len() - 1
        });
        gpus[gpu].add(sample, moment, times);
    }

    /// Returns the GPUs, and gives each run its own.
    pub(super) fn finish(self, runs: &mut [RunSummary]) -> Vec<GpuSummary> {
        let times = &self.times;
        for (position, run) in runs.iter_mut().enumerate() {
            let gpus = self.gpus_of(position, run);
            let is_on_gpus = run
                .setup
                .device
                .as_deref()
                .is_some_and(|device| device != "cpu");
            if gpus.is_none() && is_on_gpus && self.gpus.len() > 1 {
                run.notes.push(UNNAMED.to_owned());
            }
            if times.is_apart(position) {
                run.notes.push(APART.to_owned());
            }
            run.join_gpus(gpus);
        }
        self.gpus.iter().map(|rows| rows.finish(times)).collect()
    }

    /// Returns the GPUs of the run at a position: those that it names, or else the only one of the log; none on a CPU. `None` if
    /// unknown.
    fn gpus_of(&self, position: usize, run: &RunSummary) -> Option<Vec<RunGpu>> {
        if let Some(mut uuids) = run.setup.gpu_uuids.clone() {
            uuids.sort_unstable();
            let gpu = |uuid: String| {
                if let Some(&place) = self.by_uuid.get(&uuid) {
                    return self.gpus[place].of_run(position);
                }
                let note = format!("{uuid}: its figures are unknown: the log has no samples of it");
                let note = Some(note).filter(|_| !self.gpus.is_empty());
                let own = self.times.named.get(&uuid);
                RunGpu {
                    figures: Values::default().figures(own.map_or(0, |own| own.us_of(position))),
                    uuid,
                    notes: note.into_iter().collect(),
                    ..RunGpu::default()
                }
            };
            return Some(uuids.into_iter().map(gpu).collect());
        }
        match (run.setup.device.as_deref()?, &self.gpus[..]) {
            ("cpu", _) => Some(Vec::new()),
            (_, [only]) => Some(vec![only.of_run(position)]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FindingKind, Tier};
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
                })
            })
        });
        rows.collect()
    }

    fn summary(runs: Runs, samples: Vec<GpuSample>) -> Vec<GpuSummary> {
        report(runs, samples).gpus.unwrap()
    }

    fn run(device: &str, gpu_uuid: Option<&str>, first: u32, last: u32) -> Runs {
        let time = |second: u32| format!("2026-01-31T12:00:{second:02}Z").parse().ok();
        let started = started(|run| {
            run.device = Some(device.to_owned());
            run.gpu_uuids = gpu_uuid.map(|uuid| vec![uuid.to_owned()]);
            run.time = time(first);
            (run.boot_id, run.boot_s) = (Some("b".to_owned()), Some(f64::from(first)));
        });
        let last = batch(0, |batch| {
            (batch.time, batch.boot_s) = (time(last), Some(f64::from(last)));
        });
        runs([started, last])
    }

    #[test]
    fn samples_of_other_gpus_than_the_run_names_are_noted() {
        let is_noted = |uuid| {
            let run = run("cuda:0", Some(uuid), 0, 9);
            let report = report(run, samples(|_| vec![Some(40)], 12));
            let note = "GPU-9: its figures are unknown: the log has no samples of it";
            report.runs()[0].notes.iter().any(|known| known == note)
        };
        assert_eq!(["GPU-0", "GPU-9"].map(is_noted), [false, true]);
    }

    #[test]
    fn a_run_that_names_no_gpus_has_the_energy_of_the_only_one() {
        let energy = |gpus: usize| {
            let mut rows = samples(|_| vec![Some(90); gpus], 21);
            for row in &mut rows {
                row.power_w = Some(100.0);
            }
            let report = report(run("cuda:0", None, 0, 20), rows);
            let run = &report.runs()[0];
            let is_told = run.notes.iter().any(|note| note == UNNAMED);
            let gpus = run.gpus.as_ref().map(Vec::len);
            (gpus, run.efficiency.energy_j, is_told)
        };
        // 100 W over 20 s.
        assert_eq!(energy(1), (Some(1), Some(2000.0), false));
        assert_eq!(energy(2), (None, None, true));
    }

    #[test]
    fn only_a_gpu_that_a_run_used_is_judged_with_enough_known_samples() {
        let tiers = |runs, utilization: [Option<u32>; 2], seconds| {
            let gpus = summary(runs, samples(|_| utilization.to_vec(), seconds));
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
    fn errors_and_losses_outside_the_runs_are_no_findings_of_theirs() {
        let found = |error_at: u32, lost_at: u32| {
            let mut rows = samples(|second| vec![(second < lost_at).then_some(90)], 60);
            for (row, second) in rows.iter_mut().zip(0..) {
                let errors = u64::from(second >= error_at);
                row.ecc_uncorrected = (second < lost_at).then_some(errors);
            }
            let report = report(run("cuda:0", None, 10, 30), rows);
            let kinds = report.findings.iter().map(|finding| finding.kind);
            let mut kinds: Vec<FindingKind> = kinds.collect();
            kinds.retain(|kind| [FindingKind::GpuLost, FindingKind::MemoryErrors].contains(kind));
            kinds.len()
        };
        assert_eq!(
            [(5, 99), (40, 35), (20, 99), (99, 20)].map(|(error, lost)| found(error, lost)),
            [0, 0, 1, 1]
        );
    }
}
