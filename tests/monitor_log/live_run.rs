//! A real run on a CPU, recorded and reported.

use std::fs;
use std::path::Path;

use crate::common::case::{Case, send};
use crate::common::{bin, run};
use serde_json::Value;

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("file")).expect("JSON")
}

fn sum(batches: &[Value], field: &str) -> f64 {
    let value = |batch: &Value| batch[field].as_f64().expect("a number");
    batches.iter().map(value).sum()
}

#[test]
fn a_report_has_the_sums_of_the_events_and_no_figures_of_a_gpu() {
    let case = Case::new();
    let [samples, events, report] =
        ["gpu.csv", "events.jsonl", "report.json"].map(|name| case.path(&format!("shards/{name}")));
    let embed = case.embed("e.parquet");
    let mut record = bin("monitor-log");
    record.args([
        "record",
        "--interval",
        "20ms",
        "--nvml",
        "/nonexistent/nvml.so",
    ]);
    record.arg("--out").arg(&samples).arg("--");
    record.arg(embed.get_program()).args(embed.get_args());
    let stderr = run(record.arg("--events").arg(&events));
    let text = fs::read_to_string(&events).expect("events");
    let lines = text.lines();
    let all: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of_type = |kind: &str| {
        let found = all.iter().filter(|event| event["type"] == kind);
        found.cloned().collect::<Vec<Value>>()
    };
    let (started, batches, done) = (&of_type("run")[0], of_type("batch"), &of_type("done")[0]);

    // The operations of the model, by its config.json.
    let config = read_json(&case.model.join("config.json"));
    let size = |name: &str| config[name].as_u64().expect("a size");
    let (layers, hidden) = (size("num_hidden_layers"), size("hidden_size"));
    let inner = size("intermediate_size");
    let per_token = layers * 2 * hidden * (4 * hidden + 2 * inner);
    assert_eq!(started["flops_per_token"], per_token);
    assert_eq!(started["flops_per_pair"], layers * 4 * hidden);
    assert!(started["gpu_uuids"].is_null() && started["pid"].as_u64() > Some(1));
    assert!(started["load_ms"].as_f64() > Some(0.0) && started["compare_ms"].is_null());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    assert_eq!(started["host"], host.trim());
    for of_gpu in ["driver_version", "cuda_version", "gpu_names"] {
        assert!(started[of_gpu].is_null(), "{of_gpu}");
    }
    for batch in &batches {
        assert!((3..=102).contains(&batch["longest"].as_u64().expect("tokens")));
        assert!(batch["device_memory_mib"].is_null() && batch["recomputed"].is_null());
    }
    // Sequences have 3 to 102 tokens.
    let (tokens, pairs) = (sum(&batches, "tokens"), sum(&batches, "pairs"));
    assert!(
        (3.0..102.0).contains(&(pairs / tokens)),
        "{pairs} of {tokens}"
    );

    // Each batch has the totals up to it.
    for (batch, number) in batches.iter().zip(1..) {
        assert_eq!(batch["total"]["batches"], number);
    }
    let last = &batches[batches.len() - 1]["total"];
    let waits = last["stages"]["wait"]["ms"].as_f64().expect("a number");
    assert!((waits / sum(&batches, "wait_ms") - 1.0).abs() < 1e-9);
    assert_eq!(*last, done["total"]);

    assert!(batches.len() >= 100);
    for hundreds in 1..=batches.len() / 100 {
        let line = format!("gpu-embed: {hundreds}00 batches: ");
        assert_eq!(stderr.matches(&line).count(), 1, "{line}: {stderr}");
    }

    let mut command = bin("monitor-log");
    command.arg("report").arg("--gpu").arg(&samples);
    command.arg("--events").arg(&events);
    run(command.arg("--out").arg(&report));
    let report = read_json(&report);
    let reported = &report["runs"][0];
    for count in ["sequences", "residues", "tokens"] {
        let expected = Some(sum(&batches, count));
        assert_eq!(reported[count].as_f64(), expected, "{count}");
        assert_eq!(reported[count], done["total"][count], "{count}");
    }
    let expected = tokens / done["elapsed_s"].as_f64().expect("seconds");
    let rate = reported["throughput"]["tokens_per_s"].as_f64();
    assert!((rate.expect("a rate") / expected - 1.0).abs() < 1e-9);
    // Not 0: there is no GPU, and the peak of this CPU is unknown.
    for unknown in ["residues_per_joule", "energy_j", "mfu"] {
        assert_eq!(reported["efficiency"][unknown], Value::Null, "{unknown}");
    }
}

#[test]
fn a_run_that_is_stopped_and_resumed_is_one_run_of_the_report() {
    let case = Case::new();
    let [events, report] =
        ["events.jsonl", "report.json"].map(|name| case.path(&format!("shards/{name}")));
    let options = ["--events", events.to_str().expect("text")];
    let mut child = case.underway_with("e.parquet", &options);
    send(&child, 15);
    child.wait().expect("wait");
    run(case.embed("e.parquet").args(options));
    let mut command = bin("monitor-log");
    command
        .args(["report", "--events"])
        .arg(case.path("shards"));
    run(command.arg("--out").arg(&report));
    let report = read_json(&report);
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 1, "{runs:?}");
    let run = &runs[0];
    assert_eq!(
        (&run["attempts"], &run["outcome"]),
        (&2.into(), &"done".into())
    );
    let count = |field: &str| run[field].as_u64().expect("a count");
    // The first attempt was to compute all.
    assert_eq!(run["batches_saved"], Value::Null);
    assert_eq!(count("batches"), count("batches_total"));
}
