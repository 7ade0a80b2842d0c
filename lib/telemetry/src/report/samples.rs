//! The GPUs of a sample log.

use std::collections::{BTreeSet, HashMap, HashSet};

use plmkit_logs::GpuSample;

use super::attempt::Attempt;
use super::figures::GpuSums;
use super::gpu::{GpuRows, GpuSummary, RunGpu};
use super::moments::{micros, time_of_day_us};
use super::run::RunSummary;
use super::runs::Runs;
use super::work::Span;

/// Why a run has no figures from samples.
const APART: &str = "it is not joined with the samples: they are of another boot or machine, or one of both does not name its boot";

/// Why a run has no energy.
const UNNAMED: &str = "its energy and its utilization are unknown: it does not name its GPUs, and the samples are of several";

/// Sums over samples, joined with runs by the clock of their boot.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Whether there are runs. Without any, all of the time counts.
    has_runs: bool,
    /// The work on each GPU that is named, by boots, and the work that may have used any.
    named: HashMap<String, HashMap<String, Vec<Span>>>,
    on_any: Vec<(String, Span)>,
    has_any: bool,
    /// The boots of the samples.
    boots: HashSet<String>,
    /// The GPUs, and their positions by UUID.
    gpus: Vec<GpuRows>,
    by_uuid: HashMap<String, usize>,
}

impl Samples {
    /// Starts without samples. They will be joined with `runs`.
    pub fn during(runs: &Runs) -> Self {
        let mut samples = Self::default();
        for (run, attempt) in runs.attempts() {
            samples.has_runs = true;
            samples.add_work(run, attempt);
        }
        samples
    }

    fn add_work(&mut self, run: usize, attempt: &Attempt) {
        let setup = &attempt.setup;
        let span = setup.boot_id.clone().zip(attempt.boot_us.clone());
        let span = span.map(|(boot, time)| (boot, (time, run)));
        let uuids: BTreeSet<&String> = setup.gpu_uuids.iter().flatten().collect();
        for &uuid in &uuids {
            let named = self.named.entry(uuid.clone()).or_default();
            if let Some((boot, span)) = span.clone() {
                named.entry(boot).or_default().push(span);
            }
        }
        // A run without a start is not known to have computed on a GPU.
        let on_gpus = attempt.is_started && setup.device.as_deref() != Some("cpu");
        if on_gpus && uuids.is_empty() {
            self.has_any = true;
            self.on_any.extend(span);
        }
    }

    /// Takes out the work on a GPU; `None` if no run used it.
    fn take_work(&mut self, uuid: &str) -> Option<HashMap<String, Vec<Span>>> {
        let mut own = self.named.remove(uuid);
        if self.has_any {
            let own = own.get_or_insert_default();
            for (boot, span) in &self.on_any {
                own.entry(boot.clone()).or_default().push(span.clone());
            }
        }
        own
    }

    /// Adds a sample. One without a UUID counts for nothing. One without a boot has the time of day, and is joined with no run.
    pub fn add(&mut self, sample: &GpuSample) {
        let Some(uuid) = &sample.uuid else { return };
        let by_boot = sample.boot_time();
        let by_boot = by_boot.map(|(boot, boot_s)| (boot, micros(boot_s)));
        let (boot, at) = by_boot.unwrap_or_else(|| ("", time_of_day_us(sample.timestamp)));
        if !self.boots.contains(boot) {
            self.boots.insert(boot.to_owned());
        }
        let gpu = self.by_uuid.get(uuid).copied().unwrap_or_else(|| {
            let work = self.take_work(uuid);
            self.gpus.push(GpuRows::new(uuid, work, self.has_runs));
            self.by_uuid.insert(uuid.clone(), self.gpus.len() - 1);
            self.gpus.len() - 1
        });
        self.gpus[gpu].add(sample, boot, at);
    }

    /// Returns the GPUs, and gives each run its own.
    pub(super) fn finish(self, runs: &mut [RunSummary]) -> Vec<GpuSummary> {
        for (position, run) in runs.iter_mut().enumerate() {
            let gpus = self.gpus_of(position, run);
            let device = run.setup.device.as_deref();
            let is_on_gpus = device.is_some_and(|device| device != "cpu");
            if gpus.is_none() && is_on_gpus && self.gpus.len() > 1 {
                run.notes.push(UNNAMED.to_owned());
            }
            let boot = run.setup.boot_id.as_ref();
            let is_joined = boot.is_some_and(|boot| self.boots.contains(boot));
            if is_on_gpus && !is_joined && !self.gpus.is_empty() {
                run.notes.push(APART.to_owned());
            }
            run.join_gpus(gpus);
        }
        self.gpus.iter().map(GpuRows::finish).collect()
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
                let boots = self.named.get(&uuid).into_iter().flatten();
                let spans = boots.flat_map(|(_, spans)| spans);
                let own = spans.filter(|(_, run)| *run == position);
                let time_us = own.map(|(time, _)| time.end - time.start).sum();
                RunGpu {
                    figures: GpuSums::default().figures(time_us),
                    uuid,
                    notes: note.into_iter().collect(),
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
    fn errors_outside_the_runs_are_no_findings_of_theirs() {
        let found = |error_at: u32| {
            let mut rows = samples(|_| vec![Some(90)], 60);
            for (row, second) in rows.iter_mut().zip(0..) {
                row.ecc_uncorrected = Some(u64::from(second >= error_at));
            }
            let report = report(run("cuda:0", None, 10, 30), rows);
            let kinds = report.findings.iter().map(|finding| finding.kind);
            kinds
                .filter(|kind| *kind == FindingKind::MemoryErrors)
                .count()
        };
        assert_eq!([5, 40, 20].map(found), [0, 0, 1]);
    }
}
