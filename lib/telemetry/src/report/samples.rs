//! The GPUs and the host of a sample log.

use std::collections::HashMap;

use plmkit_logs::{GpuSample, SkippedLines};
use serde::Serialize;

use super::charts::GpuPictures;
use super::gpu::{GpuRows, GpuSummary, RunGpu};
use super::host::{HostRows, HostSummary};
use super::run::RunSummary;
use super::runs::Runs;
use super::times::{Moment, WorkTimes};

/// GPUs with charts, the first of a log. Charts take memory.
const MAX_PICTURES: usize = 16;

/// Why a run has no figures from samples.
const APART: &str = "it is not joined with the samples: they are of another boot or machine, whose clock may differ, or \
    only one of both names its boot; --clocks-agree joins them by the time of day";

/// Why a run has no energy.
const UNNAMED: &str = "its energy and its utilization are unknown: it does not name its GPUs, and the samples are of several";

/// Why no GPU is judged.
const OUTSIDE: &str = "no sample is known to be of the time of a run: none counts for the verdict";

/// GPUs with a note about their power.
const MAX_NOTES: usize = 8;

/// GPUs and host over the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SamplesSummary {
    /// Whether the log ends with a torn line, which was left out.
    pub torn_last_line: bool,
    /// Which samples count.
    pub scope: Scope,
    /// The GPUs.
    pub gpus: Vec<GpuSummary>,
    /// The hosts.
    pub hosts: Vec<HostSummary>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Chart data of the first GPUs.
    #[serde(skip)]
    pub(super) pictures: Vec<GpuPictures>,
}

/// Which samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Samples that were taken during a run.
    Runs,
    /// All samples: no run is known, or no sample was taken during one. In the second case they count for no verdict.
    Recording,
}

/// Sums over samples, joined with runs.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    times: WorkTimes,
    pictures: Vec<GpuPictures>,
    rows: u64,
    gpus: Vec<GpuRows>,
    /// The positions of the GPUs by UUID; of the first GPU by its host and number.
    by_uuid: HashMap<String, usize>,
    by_number: HashMap<(usize, Option<u32>), usize>,
    hosts: Vec<HostRows>,
    /// The positions of the hosts by boot id, or else by log.
    by_boot: HashMap<String, usize>,
    /// The number of the log, its last moment, and how many moments it had.
    log: usize,
    last: Option<Moment>,
    moments: u64,
    torn_last_line: bool,
    pub(super) skipped: Vec<SkippedLines>,
}

impl Samples {
    /// Starts without samples. They will be joined with `runs`.
    pub fn during(runs: &Runs) -> Self {
        Self {
            times: runs.work_times(),
            ..Self::default()
        }
    }

    /// Ends a log, of which a torn last line and malformed lines were left out. A GPU whose rows end before those of its log is
    /// lost.
    pub fn end_log(&mut self, torn: bool, skipped: Option<SkippedLines>) {
        if let Some(last) = self.last.take() {
            let gpus = self.gpus.iter_mut();
            gpus.for_each(|gpu| gpu.end_log(last, self.moments));
        }
        self.log += 1;
        self.moments = 0;
        self.torn_last_line |= torn;
        self.skipped.extend(skipped);
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &GpuSample) {
        self.rows += 1;
        let moment = self.times.place(sample);
        self.moments += u64::from(self.last.replace(moment) != Some(moment));
        let host = self.host_of(sample, moment);
        self.hosts[host].add(sample, moment, &self.times);
        if sample.index.is_none() && sample.uuid.is_none() {
            return;
        }
        let gpu = self.gpu_of(sample, host);
        self.gpus[gpu].add(sample, moment, self.moments, &self.times);
        if let Some(pictures) = self.pictures.get_mut(gpu) {
            let around = moment.at_us - 1..moment.at_us + 1;
            let (times, uuid) = (&self.times, sample.uuid.as_deref());
            let is_on = |position| times.uses(position, uuid);
            let work = times.at_work(moment.clock, &[around], is_on);
            let work = work.into_iter().flat_map(|(_, work)| work);
            let runs = work.map(|position| times.run_of(position));
            pictures.add(self.hosts[host].at_s(), sample, runs);
        }
    }

    /// Returns the position of the host of a sample: that of its boot, or else of its log.
    fn host_of(&mut self, sample: &GpuSample, moment: Moment) -> usize {
        let log = || format!("log {}", self.log);
        let key = sample.boot_id.clone().unwrap_or_else(log);
        let hosts = &mut self.hosts;
        *self.by_boot.entry(key).or_insert_with_key(|key| {
            hosts.push(HostRows::new(key, moment, &self.times));
            hosts.len() - 1
        })
    }

    /// Returns the position of the GPU of a sample: by its UUID, or by its number as long as one is not known.
    fn gpu_of(&mut self, sample: &GpuSample, host: usize) -> usize {
        let uuid = sample.uuid.as_ref();
        let number = (host, sample.index);
        let known = uuid.and_then(|uuid| self.by_uuid.get(uuid)).copied();
        let known = known.or_else(|| {
            let found = self.by_number.get(&number).copied()?;
            (uuid.is_none() || self.gpus[found].gpu.uuid.is_none()).then_some(found)
        });
        let gpu = known.unwrap_or_else(|| {
            if self.pictures.len() < MAX_PICTURES {
                self.pictures.push(GpuPictures::new());
            }
            self.gpus.push(GpuRows::new(host, &self.times));
            self.gpus.len() - 1
        });
        self.by_number.entry(number).or_insert(gpu);
        if let Some(uuid) = uuid.filter(|uuid| !self.by_uuid.contains_key(*uuid)) {
            self.by_uuid.insert(uuid.clone(), gpu);
        }
        gpu
    }

    /// Completes the summary, and gives each run its GPUs and its machine. See [`Report::new`](super::Report::new).
    pub(super) fn finish(
        mut self,
        runs: &mut [RunSummary],
        peak_tflops: Option<f64>,
    ) -> SamplesSummary {
        let is_mig = |rows: &GpuRows| rows.gpu.is_mig();
        let are_alike = self.hosts.len() > 1 || self.gpus.iter().any(is_mig);
        for rows in &mut self.gpus {
            rows.gpu.host.clone_from(&self.hosts[rows.host].name);
            if are_alike {
                rows.gpu.tell_apart();
            }
        }
        let mut seen_by = vec![Vec::new(); runs.len()];
        for (host, rows) in self.hosts.iter().enumerate() {
            rows.runs().for_each(|run| seen_by[run].push(host));
        }
        for (position, (run, seen_by)) in runs.iter_mut().zip(seen_by).enumerate() {
            self.join(position, run, seen_by, peak_tflops);
        }
        let times = &self.times;
        let is_whole = !self.hosts.iter().any(HostRows::is_inside);
        let only = self.hosts.len() == 1;
        let hosts = self.hosts.iter();
        let hosts = hosts.map(|host| host.finish(is_whole, only, times));
        // Samples from outside all runs must not judge the runs.
        let elsewhere = is_whole && self.rows > 0 && times.are_known();
        let all_us = times.time_us(times.all());
        let gpus = self.gpus.iter().map(|rows| {
            let in_run = !elsewhere && (times.all().is_empty() || rows.is_used());
            let recorded_us = is_whole.then(|| self.hosts[rows.host].recorded_us);
            rows.finish(in_run, recorded_us, all_us, times)
        });
        let outside = elsewhere.then(|| OUTSIDE.to_owned());
        let jumps = self.gpus.iter().filter_map(GpuRows::jump_note);
        SamplesSummary {
            torn_last_line: self.torn_last_line,
            scope: if is_whole {
                Scope::Recording
            } else {
                Scope::Runs
            },
            gpus: gpus.collect(),
            hosts: hosts.collect(),
            notes: outside.into_iter().chain(jumps.take(MAX_NOTES)).collect(),
            pictures: self.pictures,
        }
    }

    /// Gives the run at a position its GPUs, its machine and the energy of its attempts. `seen_by` are the hosts with samples of
    /// its time.
    fn join(
        &self,
        position: usize,
        run: &mut RunSummary,
        mut seen_by: Vec<usize>,
        peak_tflops: Option<f64>,
    ) {
        let times = &self.times;
        // Of several hosts, the one with its GPUs.
        if seen_by.len() > 1 {
            let named = || run.gpu_uuids.iter().flatten();
            let on_host =
                |host| named().any(|uuid| self.find(uuid).is_some_and(|rows| rows.host == host));
            seen_by.retain(|&host| on_host(host));
        }
        if let [host] = seen_by[..] {
            run.machine = Some(self.hosts[host].of_run(position, times));
        }
        for (of, attempt) in times.positions_of(position).zip(&mut run.by_attempt) {
            let time_us = times.time_us([of].into_iter());
            let energy_j = |uuid: &String| {
                let values = self.find(uuid)?.during(times.during(of));
                values.energy(time_us).total_j
            };
            let uuids = attempt.gpu_uuids.as_ref();
            attempt.energy_j = uuids.and_then(|uuids| uuids.iter().map(energy_j).sum());
        }
        let gpus = self.gpus_of(position, run);
        let is_on_gpus = run.device.as_deref().is_some_and(|device| device != "cpu");
        if gpus.is_none() && is_on_gpus && self.gpus.len() > 1 {
            run.notes.push(UNNAMED.to_owned());
        }
        if times.is_apart(position) {
            run.notes.push(APART.to_owned());
        }
        run.join_gpus(gpus, peak_tflops);
    }

    fn find(&self, uuid: &str) -> Option<&GpuRows> {
        Some(&self.gpus[*self.by_uuid.get(uuid)?])
    }

    /// Returns the GPUs of the run at a position: those that it names, or else the only one of the log; none on a CPU. `None` if
    /// unknown.
    fn gpus_of(&self, position: usize, run: &RunSummary) -> Option<Vec<RunGpu>> {
        if let Some(mut uuids) = run.gpu_uuids.clone().filter(|uuids| !uuids.is_empty()) {
            uuids.sort_unstable();
            let gpu = |uuid: String| {
                if let Some(rows) = self.find(&uuid) {
                    return rows.of_run(position, &self.times);
                }
                let note = format!("{uuid}: its figures are unknown: the log has no samples of it");
                let note = Some(note).filter(|_| !self.gpus.is_empty());
                RunGpu {
                    uuid: Some(uuid),
                    notes: note.into_iter().collect(),
                    ..RunGpu::default()
                }
            };
            return Some(uuids.into_iter().map(gpu).collect());
        }
        match (run.device.as_deref()?, &self.gpus[..]) {
            ("cpu", _) => Some(Vec::new()),
            (device, [only]) if device.starts_with("cuda") => {
                Some(vec![only.of_run(position, &self.times)])
            }
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
            (run.boot_id, run.boot_s) = (Some("b".to_owned()), Some(f64::from(first)));
        });
        let last = batch(0, |batch| {
            (batch.time, batch.boot_s) = (time(last), Some(f64::from(last)));
        });
        runs([started, last])
    }

    #[test]
    fn samples_outside_the_run_do_not_count() {
        let busy = |second| vec![Some(if (11..21).contains(&second) { 90 } else { 0 })];
        let found = summary(run("cuda:0", None, 10, 20), samples(busy, 30));
        let gpu = &found.gpus[0];
        assert_eq!((found.scope, gpu.figures.samples), (Scope::Runs, 10));
        let tier = Some(Tier::None);
        assert_eq!(
            (gpu.figures.mean_utilization, gpu.bottleneck),
            (Some(0.9), tier)
        );
        let host = &found.hosts[0];
        assert_eq!((host.samples, host.peak_mem_used_mib), (10, Some(1020)));
        assert_eq!(
            (host.coverage, gpu.figures.coverage),
            (Some(1.0), Some(1.0))
        );

        let elsewhere = summary(run("cuda:0", None, 50, 59), samples(|_| vec![Some(40)], 12));
        let gpu = &elsewhere.gpus[0];
        assert_eq!(
            (elsewhere.scope, gpu.figures.samples),
            (Scope::Recording, 11)
        );
        assert_eq!((gpu.bottleneck, gpu.in_run), (None, false));
        assert!(elsewhere.notes[0].starts_with("no sample is known to be of the time"));
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
    fn a_reading_around_a_run_tells_of_the_time_around_it() {
        let joined = |seconds: u32| {
            let rows = (0..6).map(|row| {
                sample(row * seconds, |sample| {
                    (sample.power_w, sample.interval_s) = (Some(100.0), Some(seconds.into()));
                })
            });
            let report = report(run("cuda:0", Some("GPU-0"), 13, 16), rows);
            assert_eq!(report.gpus()[0].figures.mean_power_w, None);
            let run = report.runs()[0].clone();
            let gpu = &run.gpus.unwrap()[0];
            let is_told = run
                .notes
                .iter()
                .any(|note| note.contains("too few for its figures"));
            (
                gpu.figures.mean_power_w,
                gpu.energy.measured_j,
                gpu.energy.total_j,
                is_told,
            )
        };
        // The reading of 20 s stands for 10 to 20 s; 3 s of 100 W are in the run.
        assert_eq!(joined(10), (None, Some(300.0), None, true));
        // The last reading stands for 12 to 15 s; 2 s of it are in the run.
        assert_eq!(joined(3).1, Some(200.0));
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
            (
                run.efficiency.energy_j,
                run.efficiency.measured_energy_j,
                is_told,
            )
        };
        // 100 W over 20 s.
        assert_eq!(energy(1), (Some(2000.0), Some(2000.0), false));
        assert_eq!(energy(2), (None, None, true));
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
    fn a_gpu_whose_rows_end_before_those_of_its_log_is_lost_and_one_without_names_is_known_by_its_number()
     {
        let mut rows = samples(|second| vec![Some(9); if second < 10 { 2 } else { 1 }], 30);
        for row in &mut rows[..4] {
            *row = GpuSample {
                uuid: None,
                name: None,
                gpu_util: None,
                ..row.clone()
            };
        }
        let found = summary(Runs::default(), rows);
        let lost = found.gpus.iter().map(|gpu| (gpu.lost, gpu.silent_s));
        assert_eq!(lost.collect::<Vec<_>>(), [(false, 0.0), (true, 20.0)]);
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

    #[test]
    fn a_run_has_the_figures_of_its_own_machine_and_time_and_gpus_are_told_apart() {
        let started = |boot_id: &str, from: f64| {
            started(|run| {
                (run.run, run.boot_id) = (format!("{boot_id}{from}"), Some(boot_id.to_owned()));
                (run.boot_s, run.host) = (Some(from), Some(format!("n-{boot_id}")));
            })
        };
        let ended = |boot_id: &str, from: f64| {
            batch(0, |batch| {
                batch.run = format!("{boot_id}{from}");
                batch.boot_s = Some(from + 20.0);
            })
        };
        let all = [("a", 0.0), ("a", 30.0), ("b", 0.0)];
        let events = all
            .iter()
            .flat_map(|(boot, from)| [started(boot, *from), ended(boot, *from)]);
        let rows = (0..52).flat_map(|second| {
            ["a", "b"].map(|boot_id| {
                sample(second, |sample| {
                    sample.boot_id = Some(boot_id.to_owned());
                    sample.uuid = Some(format!("GPU-12345678-{boot_id}"));
                    let percent = if boot_id == "b" {
                        90.0
                    } else {
                        f64::from(second / 26) + 10.0
                    };
                    sample.host_cpu_util = Some(percent);
                })
            })
        });
        let report = report(runs(events), rows);
        let cpu = report
            .runs()
            .iter()
            .map(|run| run.machine.as_ref()?.mean_cpu_utilization);
        assert_eq!(cpu.collect::<Vec<_>>(), [Some(0.1), Some(0.11), Some(0.9)]);
        let labels = report.gpus().iter().map(GpuSummary::label);
        let expected = [
            "gpu 0 (Fake, n-a, GPU-12345678)",
            "gpu 0 (Fake, n-b, GPU-12345678)",
        ];
        assert_eq!(labels.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_host_counts_once_a_moment_and_is_no_gpu() {
        let mut rows = samples(|_| vec![None, None], 3);
        rows.push(sample(10, |sample| {
            (sample.index, sample.uuid) = (None, None);
            sample.host_cpu_util = Some(10.0);
        }));
        let summary = summary(Runs::default(), rows);
        let host = &summary.hosts[0];
        // 1 % and 2 % for a second each; the last row follows a gap of 8 s.
        assert_eq!((host.samples, host.coverage), (2, Some(0.2)));
        assert_eq!((host.partial, host.mean_cpu_utilization), (true, None));
        assert_eq!(summary.gpus.len(), 2);
    }
}
