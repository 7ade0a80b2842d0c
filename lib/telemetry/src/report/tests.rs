//! Complete reports, and the join of samples with runs.

mod attempts;
mod hostile;

use std::ops::Range;

use plmkit_logs::event::{Event, Outcome, RunStarted};
use plmkit_logs::{GpuSample, Throttle, Timestamp};

use super::{FindingKind, Report, RunSummary, Tier};
use crate::tests::{batch, done, report, runs, sample, started};

/// A machine whose wall clock is put forward by `jump` seconds in second `set`.
#[derive(Clone, Copy)]
struct Machine {
    boot_id: &'static str,
    set: i64,
    jump: i64,
}

const STEADY: Machine = Machine {
    boot_id: "a",
    set: 999,
    jump: 0,
};

/// Seconds since boot.
fn boot_s(second: i64) -> f64 {
    5000.0 + second as f64
}

impl Machine {
    fn time(self, second: i64) -> Timestamp {
        let shown = second + if second >= self.set { self.jump } else { 0 };
        let time = chrono::DateTime::from_timestamp(1_769_860_800 + shown, 0);
        time.unwrap().into()
    }

    /// A run of 60 s on a GPU that begins in second `begins`, with a batch of 1,000 residues a second.
    fn run(self, name: &str, uuid: &str, begins: i64) -> Vec<Event> {
        let mut events = vec![started(|run| {
            (run.run, run.job) = (name.to_owned(), Some("job".to_owned()));
            (run.time, run.boot_s) = (Some(self.time(begins)), Some(boot_s(begins)));
            run.boot_id = Some(self.boot_id.to_owned());
            run.device = Some("cuda".to_owned());
            run.gpu_uuids = Some(vec![uuid.to_owned()]);
        })];
        events.extend((1..=60).map(|second| {
            batch(second as u64, |batch| {
                (batch.run, batch.residues) = (name.to_owned(), 1000);
                let at = begins + second;
                (batch.time, batch.boot_s) = (Some(self.time(at)), Some(boot_s(at)));
                batch.elapsed_s = Some(second as f64);
            })
        }));
        events.push(done(|done| {
            (done.run, done.elapsed_s) = (name.to_owned(), 60.0);
            let at = begins + 60;
            (done.time, done.boot_s) = (Some(self.time(at)), Some(boot_s(at)));
        }));
        events
    }

    /// 200 s of a GPU that is busy and uses 500 W while `busy`, else 100 W.
    fn recording(self, uuid: &str, busy: Range<i64>) -> Vec<GpuSample> {
        let mut energy_j = 0.0;
        let samples = (0..200).map(|second| {
            let was_busy = busy.contains(&(second - 1));
            energy_j += if was_busy { 500.0 } else { 100.0 };
            sample(0, |sample| {
                sample.timestamp = self.time(second);
                sample.boot_id = Some(self.boot_id.to_owned());
                sample.boot_s = Some(boot_s(second));
                sample.uuid = Some(uuid.to_owned());
                sample.gpu_util = Some(100 * u32::from(busy.contains(&second)));
                (sample.energy_j, sample.power_w) = (Some(energy_j), Some(250.0));
            })
        });
        samples.collect()
    }
}

fn joined(events: &[Event], samples: &[GpuSample]) -> Vec<RunSummary> {
    let report = report(runs(events.iter().cloned()), samples.iter().cloned());
    report.runs.unwrap()
}

/// Mean utilisation, residues per joule, and samples of a run.
fn figures(run: &RunSummary) -> (Option<f64>, Option<f64>, u64) {
    let gpu = &run.gpus.as_ref().unwrap()[0];
    let residues_per_joule = run.efficiency.residues_per_joule;
    (
        gpu.figures.share("gpu_util"),
        residues_per_joule,
        gpu.figures.samples,
    )
}

#[test]
fn runs_of_two_machines_have_the_samples_of_their_own_gpus() {
    let other = Machine {
        boot_id: "b",
        ..STEADY
    };
    let mut second = other.run("b", "GPU-1", 100);
    if let Event::Run(started) = &mut second[0] {
        started.job = None;
    }
    let events = [STEADY.run("a", "GPU-0", 100), second].concat();
    // The log of one machine has no samples of the other.
    let first = STEADY.recording("GPU-0", 100..161);
    let both = [first.clone(), other.recording("GPU-1", 120..161)].concat();
    for (samples, utilization, count) in [(first, None, 0), (both, Some(41.0), 60)] {
        let runs = joined(&events, &samples);
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 60));
        let (mean, _, samples) = figures(&runs[1]);
        let busy_samples = mean.map(|mean| (mean * 60.0).round());
        assert_eq!((busy_samples, samples), (utilization, count));
    }
}

#[test]
fn the_batch_that_a_stop_cut_off_is_no_idle_time() {
    for (outcome, expected) in [(Outcome::Stopped, 60.0), (Outcome::Failed, 90.0)] {
        let mut events = STEADY.run("r", "GPU-0", 100);
        let Some(Event::Done(done)) = events.last_mut() else {
            unreachable!("a run has an end");
        };
        (done.outcome, done.elapsed_s) = (outcome, 90.0);
        assert_eq!(joined(&events, &[])[0].elapsed_s, Some(expected));
    }
}

#[test]
fn a_counter_that_jumps_by_more_than_a_board_can_draw_is_left_out() {
    let events = STEADY.run("r", "GPU-0", 100);
    let samples = STEADY.recording("GPU-0", 100..161);
    let zero = |row: usize, joules| if row == 130 { 0.0 } else { joules };
    let jump = |row: usize, joules| joules + if row > 130 { 1e6 } else { 0.0 };
    let changes: [&dyn Fn(usize, f64) -> f64; 2] = [&zero, &jump];
    for change in changes {
        let rows = samples
            .iter()
            .cloned()
            .enumerate()
            .map(|(row, sample)| GpuSample {
                energy_j: Some(change(row, sample.energy_j.unwrap())),
                ..sample
            });
        let report = report(runs(events.clone()), rows);
        let energy_j = report.runs()[0].efficiency.energy_j.unwrap();
        assert!((energy_j - 30_000.0).abs() < 1e-6, "{energy_j}");
    }
}

#[test]
fn the_verdict_counts_runs_and_gpus_by_their_worst_finding() {
    let events = [("a", 70), ("b", 95), ("c", 83)]
        .into_iter()
        .flat_map(|(name, filled)| {
            (0..3).map(move |number| {
                batch(number, |batch| {
                    (batch.run, batch.token_budget) = (name.to_owned(), Some(100));
                    batch.tokens = filled;
                })
            })
        });
    let report = report(runs(events), STEADY.recording("GPU-0", 0..20));
    let expected = "3 runs: 1 critical (packing 70.0 %), 1 mild (packing 83.0 %), 1 ok";
    assert_eq!(report.reasons, expected);
}

#[test]
fn threads_that_lack_cores_are_a_finding_of_a_run_on_a_cpu() {
    let found = |device: &str, seconds: u32, cpu_s: Option<f64>| {
        let started = started(|run| {
            (run.device, run.threads) = (Some(device.to_owned()), Some(4));
        });
        let batch = batch(0, |batch| {
            // It computes for 90 % of the time.
            (batch.elapsed_s, batch.compute_ms) =
                (Some(f64::from(seconds)), Some(900.0 * f64::from(seconds)));
            batch.cpu_s = cpu_s;
        });
        let report = report(runs([started, batch]), []);
        let mut found = report.findings.iter();
        let found = found.find(|finding| finding.kind == FindingKind::Cpu);
        (
            found.map(|finding| finding.tier),
            report.runs()[0].cpu_share,
        )
    };
    let (mild, critical) = (Some(Tier::Mild), Some(Tier::Critical));
    assert_eq!(found("cpu", 100, Some(360.0)), (None, Some(1.0)));
    assert_eq!(found("cpu", 100, Some(288.0)), (None, Some(0.8)));
    assert_eq!(found("cpu", 100, Some(180.0)), (mild, Some(0.5)));
    assert_eq!(found("cpu", 100, Some(90.0)), (critical, Some(0.25)));
    // A run of a few seconds, one on a GPU, and a log of an older version.
    assert_eq!(found("cpu", 8, Some(7.2)), (None, Some(0.25)));
    assert_eq!(found("cuda:0", 100, Some(90.0)), (None, None));
    assert_eq!(found("cpu", 100, None), (None, None));
}

#[test]
fn a_withheld_figure_is_no_finding() {
    let mut samples = STEADY.recording("GPU-0", 100..161)[100..107].to_vec();
    for sample in &mut samples {
        sample.throttle = Some(Throttle(vec!["hw_slowdown".to_owned()]));
    }
    let report = report(runs(STEADY.run("r", "GPU-0", 100)), samples);
    assert_eq!(report.gpus()[0].figures.mean("throttled"), None);
    let kinds = report.findings.iter().map(|finding| finding.kind);
    assert_eq!(
        kinds
            .filter(|kind| *kind == FindingKind::Throttling)
            .count(),
        0
    );
}

/// Logs are read in the order of their times.
#[test]
fn a_row_that_is_late_all_the_same_is_left_out() {
    let samples = STEADY.recording("GPU-0", 100..161);
    let (first, second) = samples.split_at(130);
    let events = STEADY.run("r", "GPU-0", 100);
    let late = &joined(&events, &[second, first].concat())[0];
    let covered = late.gpus.as_ref().unwrap()[0].figures.coverage;
    assert_eq!(
        (covered, late.efficiency.energy_j),
        (Some(0.5), Some(30_000.0))
    );
}
