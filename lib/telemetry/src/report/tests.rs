//! Reports as wholes: their form, and which samples count for which run.

use std::ops::Range;

use plmkit_logs::event::{BatchDone, Event, RunDone, RunStarted};
use plmkit_logs::{GpuSample, Timestamp};
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{Report, RunSummary, Runs, Samples, Tier};

#[test]
fn a_tier_begins_below_its_threshold() {
    let tier = |share| Tier::below(share, 0.5, 0.8);
    assert_eq!(
        [0.49, 0.5, 0.79, 0.8].map(tier),
        [Tier::Critical, Tier::Mild, Tier::Mild, Tier::None]
    );
    assert!(Tier::Critical > Tier::Mild && Tier::Mild > Tier::None);
}

/// [`Outcome`](plmkit_logs::event::Outcome), or null.
pub(super) fn outcome_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": ["done", "stopped", "failed", null] })
}

/// The form of a report, for programs that read it.
#[test]
fn the_schema_that_is_checked_in_is_that_of_the_structs() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/schemas/monitor-report.schema.json"
    );
    // As it is written: a value that is not known is null, and never left out.
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Report>();
    schema.insert("title".to_owned(), "Report of monitor-log report".into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
        std::fs::write(path, &text).unwrap();
    }
    assert!(text == std::fs::read_to_string(path).unwrap(), "{path}");
}

/// Noon, in ms since 1970.
const NOON_MS: i64 = 1_769_860_800_000;

/// A machine of true time in seconds, with a clock on the wall that is set by `jump` seconds in second `set`.
#[derive(Clone, Copy)]
struct Machine {
    boot_id: Option<&'static str>,
    set: i64,
    jump: i64,
}

const STEADY: Machine = Machine {
    boot_id: Some("a"),
    set: 999,
    jump: 0,
};

/// Both logs as older programs write them.
const WITHOUT_BOOT: Machine = Machine {
    boot_id: None,
    ..STEADY
};

impl Machine {
    fn time(self, second: i64) -> Timestamp {
        let shown = second + if second >= self.set { self.jump } else { 0 };
        let time = chrono::DateTime::from_timestamp_millis(NOON_MS + shown * 1000);
        time.unwrap().into()
    }

    fn boot_s(self, second: i64) -> Option<f64> {
        self.boot_id.map(|_| 5000.0 + second as f64)
    }

    /// A run of 60 s on a GPU, a batch a second, that begins in second `begins`.
    fn run(self, name: &str, uuid: &str, begins: i64) -> Vec<Event> {
        let mut events = vec![Event::Run(RunStarted {
            run: name.to_owned(),
            job: Some("job".to_owned()),
            time: Some(self.time(begins)),
            boot_id: self.boot_id.map(str::to_owned),
            boot_s: self.boot_s(begins),
            device: Some("cuda".to_owned()),
            gpu_uuids: Some(vec![uuid.to_owned()]),
            ..RunStarted::default()
        })];
        for second in 1..=60 {
            events.push(Event::Batch(BatchDone {
                run: name.to_owned(),
                batch: second as u64,
                time: Some(self.time(begins + second)),
                boot_s: self.boot_s(begins + second),
                elapsed_s: Some(second as f64),
                residues: 1000,
                ..BatchDone::default()
            }));
        }
        events.push(Event::Done(RunDone {
            run: name.to_owned(),
            time: Some(self.time(begins + 60)),
            boot_s: self.boot_s(begins + 60),
            elapsed_s: 60.0,
            ..RunDone::default()
        }));
        events
    }

    /// 200 s of a GPU, from second 0, that is busy and uses 500 W while `busy`, else 100 W.
    fn recording(self, uuid: &str, busy: Range<i64>) -> Vec<GpuSample> {
        let mut energy_j = 0.0;
        let samples = (0..200).map(|second| {
            // What it used since the sample before.
            energy_j += if busy.contains(&(second - 1)) {
                500.0
            } else {
                100.0
            };
            GpuSample {
                boot_id: self.boot_id.map(str::to_owned),
                boot_s: self.boot_s(second),
                index: Some(0),
                uuid: Some(uuid.to_owned()),
                gpu_util: Some(if busy.contains(&second) { 100 } else { 0 }),
                energy_j: Some(energy_j),
                power_w: Some(250.0),
                ..GpuSample::at(self.time(second))
            }
        });
        samples.collect()
    }
}

fn joined(events: &[Event], samples: &[GpuSample]) -> Vec<RunSummary> {
    let mut runs = Runs::default();
    for event in events {
        runs.add(event);
    }
    let mut joined = Samples::during(&runs);
    for sample in samples {
        joined.add(sample);
    }
    let events = runs.finish(false);
    let samples = joined.finish(false, Some(&events));
    Report::new(Some(events), Some(samples), None)
        .events
        .unwrap()
        .runs
}

/// Mean utilisation and residues for each joule of a run, and its samples.
fn figures(run: &RunSummary) -> (Option<f64>, Option<f64>, u64) {
    let gpu = &run.gpus.as_ref().unwrap()[0];
    (
        gpu.mean_utilization,
        run.efficiency.residues_per_joule,
        gpu.samples,
    )
}

#[test]
fn a_run_has_the_samples_and_the_energy_of_its_time_whatever_the_clock_on_the_wall() {
    for (set, jump) in [
        (999, 0),
        (130, 3600),
        (130, -3600),
        (130, 30),
        (130, -90),
        (60, -60),
    ] {
        let machine = Machine {
            set,
            jump,
            ..STEADY
        };
        let samples = machine.recording("GPU-0", 100..161);
        let runs = joined(&machine.run("r", "GPU-0", 100), &samples);
        // 60,000 residues with 500 W over 60 s.
        assert_eq!(
            figures(&runs[0]),
            (Some(1.0), Some(2.0), 61),
            "{set} s: {jump} s"
        );
        assert_eq!(
            (runs[0].elapsed_s, runs[0].efficiency.energy_j),
            (Some(60.0), Some(30_000.0))
        );
    }
}

#[test]
fn samples_without_a_boot_are_joined_by_the_time_of_day() {
    let samples = WITHOUT_BOOT.recording("GPU-0", 100..161);
    for machine in [STEADY, WITHOUT_BOOT] {
        let runs = joined(&machine.run("r", "GPU-0", 100), &samples);
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(4.0), 61));
    }
}

#[test]
fn a_recorder_that_was_started_again_goes_on_for_the_run() {
    let mut samples = STEADY.recording("GPU-0", 100..161);
    samples.remove(129);
    let runs = joined(&STEADY.run("r", "GPU-0", 100), &samples);
    assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 60));
}

#[test]
fn runs_of_two_machines_have_the_samples_of_their_own_gpus() {
    let other = Machine {
        boot_id: Some("b"),
        ..STEADY
    };
    let mut second = other.run("b", "GPU-1", 100);
    if let Event::Run(started) = &mut second[0] {
        started.job = None;
    }
    let events = [STEADY.run("a", "GPU-0", 100), second].concat();
    // The log of one machine knows nothing of the other.
    let first = STEADY.recording("GPU-0", 100..161);
    let runs = joined(&events, &first);
    assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 61));
    assert_eq!(figures(&runs[1]), (None, None, 0));
    // The logs of both, one after the other.
    let both = [first, other.recording("GPU-1", 120..161)].concat();
    let runs = joined(&events, &both);
    assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 61));
    let (utilization, _, samples) = figures(&runs[1]);
    assert_eq!(
        (utilization.map(|mean| (mean * 61.0).round()), samples),
        (Some(41.0), 61)
    );
}

#[test]
fn a_run_that_is_at_work_is_measured_so_far() {
    let events = &STEADY.run("r", "GPU-0", 100)[..31];
    let runs = joined(events, &STEADY.recording("GPU-0", 100..200));
    assert_eq!((runs[0].outcome, runs[0].elapsed_s), (None, Some(30.0)));
    assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 31));
}

#[test]
fn two_attempts_at_a_run_have_the_samples_of_both() {
    let first = &STEADY.run("r1", "GPU-0", 20)[..31];
    let events = [first, &STEADY.run("r2", "GPU-0", 100)].concat();
    let busy_between = STEADY.recording("GPU-0", 20..161);
    let runs = joined(&events, &busy_between);
    assert_eq!((runs[0].attempts, runs[0].elapsed_s), (2, Some(90.0)));
    let (utilization, residues_per_joule, samples) = figures(&runs[0]);
    assert_eq!((utilization, samples), (Some(1.0), 31 + 61));
    // Thirty batches were computed twice and count once.
    assert_eq!(residues_per_joule, Some(60_000.0 / (500.0 * 90.0)));
}
