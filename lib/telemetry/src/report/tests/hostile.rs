//! Numbers that no machine writes: reports have no panic, no number that is none, and no share beyond 0 to 1.

use std::fmt::Write;

use plmkit_logs::LineParser;
use plmkit_logs::event::EventLines;
use plmkit_logs::gpu_csv::{GpuCsvReader, HEADER};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::live::LiveRuns;
use crate::report::{Runs, Samples, html, multiqc, sentences};

const NUMBERS: &str = "0 1 -1 -0.0 2 3.5 60 4095 4096 2147483647 2147483648 4294967295 9007199254740992 9007199254740993 \
    9223372036854775807 18446744073709551614 18446744073709551615 1e9 1e13 1e15 1e300 1e308 -1e308 1e-300 5e-324";

const FIELDS: &str = "batch boot_s elapsed_s cpu_s wait_ms h2d_ms compute_ms d2h_ms write_ms queue_depth sequences tokens \
    residues longest pairs token_budget oom_splits recomputed device_memory_mib device_memory_peak_mib rejected \
    flops_per_token flops_per_pair threads batches_total batches_saved sequences_total tokens_total load_ms";

fn number() -> impl Strategy<Value = String> {
    let hostile: Vec<&str> = NUMBERS.split_whitespace().collect();
    prop_oneof![
        proptest::sample::select(hostile).prop_map(str::to_owned),
        (0..200_u32).prop_map(|number| number.to_string()),
    ]
}

/// Some fields of an event; those that it must have come first, so that others may replace them.
fn event() -> impl Strategy<Value = String> {
    let names: Vec<&str> = FIELDS.split_whitespace().collect();
    let fields = prop::collection::btree_map(proptest::sample::select(names), number(), 0..12);
    let kind = proptest::sample::select(vec!["run", "batch", "batch", "batch", "done"]);
    (kind, 0..3_u8, 0..3_u8, fields, totals()).prop_map(|(kind, run, boot, fields, totals)| {
        let mut line = format!(
            r#"{{"type":"{kind}","run":"{run}","job":"{}","boot_id":"{boot}""#,
            run % 2
        );
        line += r#","device":"cuda:0","dtype":"f16","gpu_uuids":["GPU-0"],"outcome":"done""#;
        for name in ["batch", "sequences", "tokens", "residues", "elapsed_s"] {
            if !fields.contains_key(name) {
                let _ = write!(line, r#","{name}":{}"#, run + boot);
            }
        }
        for (name, value) in fields {
            let _ = write!(line, r#","{name}":{value}"#);
        }
        line + &totals + "}"
    })
}

/// Totals of an event, or none.
fn totals() -> impl Strategy<Value = String> {
    let total = (number(), number(), number(), number()).prop_map(|(batches, tokens, ms, room)| {
        format!(
            r#","total":{{"batches":{batches},"sequences":{batches},"tokens":{tokens},"residues":{tokens},"pairs":{room},"packing":{{"batches":1,"tokens":{tokens},"room":{room},"min_fill":0.5,"below_85":1}},"stages":{{"wait":{{"ms":{ms},"max_ms":{ms}}},"compute":{{"ms":{ms},"max_ms":{ms}}}}},"kernels":{{"gemm_ms":{ms}}}}}"#
        )
    });
    prop_oneof![2 => Just(String::new()), 1 => total]
}

fn row() -> impl Strategy<Value = String> {
    let columns = HEADER.trim_end().split(',').count();
    let value = prop_oneof![2 => Just(String::new()), 3 => number()];
    let times = proptest::sample::select(vec![
        "2026-01-31T12:00:00Z",
        "1970-01-01T00:00:01Z",
        "+262142-01-01T00:00:00Z",
    ]);
    (0..3_u8, times, prop::collection::vec(value, columns)).prop_map(|(boot, time, mut values)| {
        for (place, column) in HEADER.trim_end().split(',').enumerate() {
            match column {
                "timestamp" => values[place] = time.to_owned(),
                "boot_id" => values[place] = boot.to_string(),
                "uuid" | "name" => values[place] = "GPU-0".to_owned(),
                "throttle" | "processes" => values[place].clear(),
                "gpu_util" | "mem_util" => values[place] = "50".to_owned(),
                _ => {}
            }
        }
        values.join(",")
    })
}

fn check_shares(name: &str, value: &Value) {
    let is_share = ["share", "coverage", "utilization"]
        .iter()
        .any(|end| name.ends_with(end));
    match value {
        Value::Number(number) if is_share => {
            let share = number.as_f64().unwrap();
            assert!((0.0..=1.0 + 1e-9).contains(&share), "{name}: {share}");
        }
        Value::Array(values) => values.iter().for_each(|value| check_shares(name, value)),
        Value::Object(values) => values
            .iter()
            .for_each(|(name, value)| check_shares(name, value)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn hostile_numbers_make_no_panic_and_no_impossible_figure(
        events in prop::collection::vec(event(), 0..40),
        rows in prop::collection::vec(row(), 0..40),
        peak_tflops in proptest::sample::select(vec![None, Some(1e-300), Some(1e300)]),
    ) {
        let events = events.iter().filter_map(|line| EventLines.parse(line.as_bytes()).ok().flatten());
        let (mut runs, mut live) = (Runs::default(), LiveRuns::default());
        for event in events {
            runs.add(&event);
            live.add(&event, "2026-01-31T12:00:00Z".parse().unwrap());
        }
        runs.peak_tflops = peak_tflops;
        let status = live.status("2026-01-31T12:00:01Z".parse().unwrap());
        let text = format!("{status:?}");
        prop_assert!(!text.contains("NaN"), "{}", text);
        let mut samples = Samples::during(&runs);
        for row in rows {
            let log = format!("{HEADER}{row}\n");
            let read = GpuCsvReader::new(log.as_bytes(), "gpu.csv");
            read.filter_map(Result::ok).for_each(|sample| samples.add(&sample));
        }
        let report = Report::new(Some(runs), Some(samples));
        let debug = format!("{report:?}");
        prop_assert!(!debug.contains("NaN"), "{debug}");
        let json = serde_json::to_value(&report).unwrap();
        check_shares("", &json);
        let texts = sentences(&report).join("\n") + &html(&report) + &multiqc(&report, "s").to_string();
        for word in ["NaN", "inf ", "inf%", "-inf"] {
            prop_assert!(!texts.contains(word), "{word}: {texts}");
        }
    }
}

/// Runs of many machines, and GPUs of many names: a search through all of them for each would take minutes.
#[test]
fn a_report_of_many_runs_and_gpus_names_all_of_them() {
    const COUNT: u32 = 40_000;
    let mut runs = Runs::default();
    for number in 0..COUNT {
        let name = number.to_string();
        let boot_s = Some(f64::from(number % 1000));
        runs.add(&started(|run| {
            (run.run, run.job) = (name.clone(), Some(name.clone()));
            (run.host, run.boot_id, run.boot_s) = (Some(name.clone()), Some(name.clone()), boot_s);
            run.device = Some("cuda:0".to_owned());
            run.gpu_uuids = Some(vec![format!("GPU-{name}")]);
        }));
        runs.add(&done(|done| {
            (done.run, done.elapsed_s) = (name, 1.0);
            done.boot_s = boot_s.map(|boot_s| boot_s + 1.0);
        }));
    }
    let mut samples = Samples::during(&runs);
    for number in 0..COUNT {
        samples.add(&sample(number % 60, |sample| {
            (sample.uuid, sample.name) = (Some(format!("GPU-{number}")), Some(number.to_string()));
            (sample.boot_id, sample.boot_s) = (Some(number.to_string()), Some(1.0));
            sample.gpu_util = Some(50);
        }));
    }
    let report = Report::new(Some(runs), Some(samples));
    assert!(html(&report).contains("<td>999") && !multiqc(&report, "s").is_null());
    assert!(!sentences(&report).is_empty());
}
