//! A run that was resumed on other GPUs, and times that only some records have.

use super::*;
use crate::report::{Runs, Samples};

/// An attempt of so many batches of a second each, from one number on: 10 tokens, 8 residues and 270 operations a batch.
fn attempt(
    name: &str,
    begins: u32,
    numbers: Range<u64>,
    change: impl FnOnce(&mut RunStarted),
) -> Vec<Event> {
    let boot = |second: u32| Some(f64::from(begins + second));
    let mut setup = RunStarted::default();
    let first = started(|run| {
        (run.run, run.job) = (name.to_owned(), Some("job".to_owned()));
        (run.boot_id, run.boot_s) = (Some("b".to_owned()), boot(0));
        (run.flops_per_token, run.flops_per_pair) = (Some(7), Some(2));
        (run.load_ms, run.dtype) = (Some(1800.0), Some("f16".to_owned()));
        run.device = Some("cuda:0".to_owned());
        change(run);
        setup = run.clone();
    });
    let batches = numbers.zip(1..).map(|(number, second)| {
        batch(number, |batch| {
            batch.run = name.to_owned();
            (batch.sequences, batch.tokens, batch.residues) = (1, 10, 8);
            (batch.pairs, batch.compute_ms, batch.wait_ms) = (Some(100), Some(900.0), Some(0.0));
            (batch.boot_s, batch.elapsed_s) = (boot(second), Some(f64::from(second)));
        })
    });
    [first].into_iter().chain(batches).collect()
}

fn on(uuid: &str) -> impl Fn(&mut RunStarted) {
    move |run| {
        run.gpu_uuids = Some(vec![uuid.to_owned()]);
        run.gpu_names = Some(vec!["NVIDIA H100 80GB HBM3".to_owned()]);
    }
}

/// A row a second of a GPU, with this power.
fn rows(uuid: &str, seconds: Range<u32>, power_w: f64) -> impl Iterator<Item = GpuSample> {
    seconds.map(move |second| {
        sample(0, |sample| {
            (sample.boot_s, sample.uuid) = (Some(f64::from(second)), Some(uuid.to_owned()));
            (sample.power_w, sample.gpu_util) = (Some(power_w), Some(90));
            sample.name = Some("NVIDIA H100 80GB HBM3".to_owned());
        })
    })
}

fn near(found: Option<f64>, expected: f64) {
    let found = found.expect("a known figure");
    assert!((found / expected - 1.0).abs() < 1e-9, "{found}: {expected}");
}

#[test]
fn each_attempt_has_its_gpu_time_and_energy_and_the_run_has_their_sums() {
    let first = attempt("r1", 0, 0..30, on("GPU-A"));
    let second = attempt("r2", 100, 30..65, on("GPU-B"));
    let mut runs = runs([first, second].concat());
    // A device of 1,000 operations a second.
    runs.peak_tflops = Some(1e-9);
    let mut samples = Samples::during(&runs);
    rows("GPU-A", 0..31, 300.0).for_each(|row| samples.add(&row));
    rows("GPU-B", 100..136, 100.0).for_each(|row| samples.add(&row));
    let report = Report::new(Some(runs), Some(samples));
    let run = &report.runs()[0];
    let figures = &run.efficiency;
    assert_eq!(
        (figures.flops, figures.energy_j),
        (Some(65.0 * 270.0), Some(12_500.0))
    );
    near(figures.residues_per_joule, 65.0 * 8.0 / 12_500.0);
    near(figures.mfu, 65.0 * 270.0 / 65.0 / 1000.0);
    near(run.gpu_hours, (1.8 + 30.0 + 1.8 + 35.0) / 3600.0);
    assert_eq!((run.elapsed_s, run.device_s), (Some(65.0), Some(65.0)));
    let gpus = run.gpus.as_ref().unwrap();
    let covered = gpus.iter().map(|gpu| {
        let watts = gpu.figures.mean("power_w");
        (
            gpu.figures.coverage,
            watts,
            gpu.figures.energy_j,
            gpu.figures.samples,
        )
    });
    let expected = [
        (Some(1.0), Some(300.0), Some(9000.0), 30),
        (Some(1.0), Some(100.0), Some(3500.0), 35),
    ];
    assert_eq!(covered.collect::<Vec<_>>(), expected);
    assert_eq!(run.setup.gpu_uuids.as_ref().unwrap(), &["GPU-A", "GPU-B"]);
}

#[test]
fn the_name_of_the_device_changes_no_figure() {
    let same = on("GPU-A");
    let first = attempt("r1", 0, 0..30, &same);
    let second = attempt("r2", 100, 30..60, |run| {
        same(run);
        run.device = Some("cuda:1".to_owned());
    });
    let all = rows("GPU-A", 0..140, 300.0);
    let report = report(runs([first, second].concat()), all);
    let run = &report.runs()[0];
    let (flops, energy_j) = (run.efficiency.flops, run.efficiency.energy_j);
    assert_eq!((flops, energy_j), (Some(60.0 * 270.0), Some(18_000.0)));
    near(run.idle_share, 1.0 - 60.0 * 0.9 / 60.0);
}

#[test]
fn a_share_is_known_if_the_times_of_all_batches_are() {
    let mut events = attempt("r", 0, 0..10, |_| {});
    for event in &mut events {
        if let Event::Batch(batch) = event {
            (batch.compute_ms, batch.wait_ms) = (Some(970.0), Some(10.0));
        }
    }
    let run = &crate::tests::summaries(events.clone())[0];
    near(run.stage_share("compute"), 0.97);
    near(run.stage_share("wait"), 0.01);
    near(run.idle_share, 0.03);
    if let Event::Batch(batch) = &mut events[2] {
        batch.compute_ms = None;
    }
    let run = &crate::tests::summaries(events)[0];
    assert_eq!((run.stage_share("compute"), run.idle_share), (None, None));
    near(run.stage_share("wait"), 0.01);
}

#[test]
fn records_of_two_boots_are_not_joined() {
    let run = STEADY.run("r", "GPU-0", 100);
    let other = Machine {
        boot_id: "other",
        ..STEADY
    };
    let rows = other.recording("GPU-0", 100..161);
    let apart = report(runs(run), rows);
    let run = &apart.runs()[0];
    assert_eq!(figures(run), (None, None, 0));
    assert!(
        run.notes
            .iter()
            .any(|note| note.contains("another boot or machine")),
        "{:?}",
        run.notes
    );
    assert_eq!(apart.gpus()[0].bottleneck, None);
}

#[test]
fn the_energy_of_a_gpu_that_runs_share_is_that_of_the_gpu_alone() {
    let mut second = STEADY.run("b", "GPU-0", 120);
    if let Event::Run(started) = &mut second[0] {
        started.job = None;
    }
    let events = [STEADY.run("a", "GPU-0", 100), second].concat();
    let report = report(runs(events), STEADY.recording("GPU-0", 100..181));
    for run in report.runs() {
        assert_eq!(figures(run), (Some(1.0), None, 60));
        assert!(run.notes[0].contains("other runs were at work on it"));
    }
    assert_eq!(report.gpus()[0].figures.energy_j, Some(40_000.0));
}

#[test]
fn power_is_integrated_where_the_counter_is_missing() {
    let mut samples = STEADY.recording("GPU-0", 100..161);
    for sample in samples.iter_mut().step_by(3) {
        sample.energy_j = None;
    }
    // One interval of three has a counter at both ends: 500 W, and 250 W by the readings.
    let run = &joined(&STEADY.run("r", "GPU-0", 100), &samples)[0];
    near(run.efficiency.energy_j, 20.0 * 500.0 + 40.0 * 250.0);
}

#[test]
fn a_row_that_is_there_twice_counts_once_where_the_interval_changes() {
    let seconds = (0..=20).chain([25, 30, 30]).chain((35..=120).step_by(5));
    let rows = seconds.flat_map(|second| {
        let rows = rows("GPU-0", second..second + 1, 300.0);
        let interval_s = Some(if second > 20 { 5.0 } else { 1.0 });
        rows.map(move |row| GpuSample { interval_s, ..row })
    });
    let gpu = &report(Runs::default(), rows).gpus.unwrap()[0];
    assert_eq!((gpu.figures.coverage, gpu.figures.samples), (Some(1.0), 40));
}
