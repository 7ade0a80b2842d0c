//! A real run on a CPU, recorded and reported.

use std::fs;

use crate::common::case::{Case, send};
use crate::common::{bin, run};
use serde_json::Value;

fn sum(batches: &[Value], field: &str) -> f64 {
    let value = |batch: &Value| batch[field].as_f64().expect("a number");
    batches.iter().map(value).sum()
}

#[test]
fn a_report_says_what_the_events_add_up_to_and_leaves_empty_what_no_gpu_tells() {
    let case = Case::new();
    let [samples, events, report] =
        ["gpu.csv", "events.jsonl", "report.json"].map(|name| case.path(&format!("shards/{name}")));
    let embed = case.embed("e.parquet");
    let said = run(bin("monitor-log")
        .args([
            "record",
            "--interval",
            "20ms",
            "--nvml",
            "/nonexistent/nvml.so",
            "--out",
        ])
        .arg(&samples)
        .arg("--")
        .arg(embed.get_program())
        .args(embed.get_args())
        .arg("--events")
        .arg(&events));
    let text = fs::read_to_string(&events).expect("events");
    let events_read: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of_type = |kind: &str| {
        let found = events_read.iter().filter(|event| event["type"] == kind);
        found.cloned().collect::<Vec<Value>>()
    };
    let (started, batches, done) = (&of_type("run")[0], of_type("batch"), &of_type("done")[0]);

    // What the model costs, by its config.json: 4 layers of 64, 256 inside.
    let config = fs::read(case.model.join("config.json")).expect("config");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let size = |name: &str| config[name].as_u64().expect("a size");
    let (layers, hidden, inside) = (
        size("num_hidden_layers"),
        size("hidden_size"),
        size("intermediate_size"),
    );
    assert_eq!(
        started["flops_per_token"],
        layers * 2 * hidden * (4 * hidden + 2 * inside)
    );
    assert_eq!(started["flops_per_pair"], layers * 4 * hidden);
    assert!(started["gpu_uuids"].is_null() && started["pid"].as_u64() > Some(1));
    assert!(started["load_ms"].as_f64() > Some(0.0) && started["compare_ms"].is_null());
    // Of sequences of 3 to 102 tokens.
    let (tokens, pairs) = (sum(&batches, "tokens"), sum(&batches, "pairs"));
    assert!(
        3.0 * tokens < pairs && pairs < 102.0 * tokens,
        "{pairs} of {tokens}"
    );

    let hundreds = (1..=batches.len() / 100).map(|count| format!("gpu-embed: {count}00 batches: "));
    for expected in hundreds {
        assert_eq!(said.matches(&expected).count(), 1, "{expected}: {said}");
    }
    assert!(batches.len() >= 100);

    run(bin("monitor-log")
        .arg("report")
        .arg("--gpu")
        .arg(&samples)
        .arg("--events")
        .arg(&events)
        .arg("--out")
        .arg(&report));
    let report: Value = serde_json::from_slice(&fs::read(&report).expect("report")).expect("JSON");
    let reported = &report["events"]["runs"][0];
    for count in ["sequences", "residues", "tokens"] {
        assert_eq!(
            reported[count].as_f64(),
            Some(sum(&batches, count)),
            "{count}"
        );
        assert_eq!(reported[count], done[count], "{count}");
    }
    let per_second = tokens / done["elapsed_s"].as_f64().expect("seconds");
    let said_per_second = reported["throughput"]["tokens_per_s"]
        .as_f64()
        .expect("a rate");
    assert!((said_per_second / per_second - 1.0).abs() < 1e-9);
    assert!(report["samples"]["host"]["samples"].as_u64() > Some(0));
    // Not 0: no GPU told of power, and nobody knows this device's peak.
    for unknown in ["residues_per_joule", "energy_j", "mfu"] {
        assert_eq!(reported["efficiency"][unknown], Value::Null, "{unknown}");
    }
}

#[test]
fn a_run_that_is_stopped_and_goes_on_is_one_run_of_the_report() {
    let case = Case::new();
    let [events, report] =
        ["events.jsonl", "report.json"].map(|name| case.path(&format!("shards/{name}")));
    let mut child = case.underway_with("e.parquet", &["--events", events.to_str().expect("text")]);
    send(&child, 15);
    child.wait().expect("wait");
    run(case.embed("e.parquet").arg("--events").arg(&events));
    run(bin("monitor-log")
        .arg("report")
        .arg("--events")
        .arg(case.path("shards"))
        .arg("--out")
        .arg(&report));
    let report: Value = serde_json::from_slice(&fs::read(&report).expect("report")).expect("JSON");
    let runs = report["events"]["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(
        (&runs[0]["attempts"], &runs[0]["outcome"]),
        (&2.into(), &"done".into())
    );
    let count = |field: &str| runs[0][field].as_u64().expect("a count");
    assert_eq!(
        count("batches"),
        count("batches_saved") + count("batches_total")
    );
}
