//! `report` on a run of known work, on GPUs of known power, by clocks that may jump.

use std::fmt::Write;

use serde_json::Value;

use crate::case::{Case, assert_contains, text};

const NOON: &str = "2026-01-31T12:00:";

/// A run of 40 s with four batches of 500 tokens and 400 residues, whose clock on the wall is put forward by an hour after
/// 20 s: 2e12 operations for a token and 1e9 for each of 1e6 pairs a batch, 8e15 in all.
fn events() -> String {
    let mut log = format!(
        "{{\"type\":\"run\",\"run\":\"r\",\"time\":\"{NOON}10.000Z\",\"boot_id\":\"b\",\"boot_s\":10.0,\"device\":\"cuda\",\"dtype\":\"bf16\",\
         \"gpu_uuids\":[\"GPU-0\",\"GPU-1\"],\"flops_per_token\":2000000000000,\"flops_per_pair\":1000000000}}\n"
    );
    for batch in 0..4 {
        let hour = if batch < 2 { 12 } else { 13 };
        let _ = writeln!(
            log,
            "{{\"type\":\"batch\",\"run\":\"r\",\"batch\":{batch},\"time\":\"2026-01-31T{hour}:00:{}.000Z\",\
             \"boot_s\":{}.0,\"elapsed_s\":{}.0,\"wait_ms\":0.5,\"compute_ms\":9000,\"sequences\":50,\"tokens\":500,\"residues\":400,\
             \"pairs\":1000000,\"token_budget\":512,\"queue_depth\":3}}",
            batch * 10 + 20,
            batch * 10 + 20,
            batch * 10 + 10,
        );
    }
    log + "{\"type\":\"done\",\"run\":\"r\",\"time\":\"2026-01-31T13:00:50.000Z\",\"boot_s\":50.0,\"sequences\":200,\"tokens\":2000,\
           \"residues\":1600,\"elapsed_s\":40.0,\"outcome\":\"done\"}\n"
}

/// Two H100, a row a second from 10 s before the run to 10 s after it; each uses 500 W while the run is at work, and 100 W
/// else. The wall clock is put forward with that of the run.
fn samples() -> String {
    let mut log =
        "timestamp,boot_id,boot_s,index,uuid,name,gpu_util,power_w,energy_j,throttle,foreign_processes,ecc_uncorrected\n".to_owned();
    let mut energy_j = 1000;
    for second in 0..=60 {
        let hour = if second <= 30 { 12 } else { 13 };
        for gpu in 0..2 {
            let busy = (10..=50).contains(&second);
            let _ = writeln!(
                log,
                "2026-01-31T{hour}:{:02}:{:02}.000Z,b,{second},{gpu},GPU-{gpu},NVIDIA H100 80GB HBM3,{},,{energy_j},none,0,0",
                second / 60,
                second % 60,
                if busy { 90 } else { 0 },
            );
        }
        energy_j += if (10..50).contains(&second) { 500 } else { 100 };
    }
    log
}

fn case() -> Case {
    let case = Case::new();
    case.write("events.jsonl", &events());
    case.write("gpu.csv", &samples());
    case
}

fn run(case: &Case, args: &str) -> Value {
    let output = case.run(&format!("report --out report.json {args}"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&case.read("report.json")).unwrap();
    report["events"]["runs"][0].clone()
}

fn near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!(
        (found / expected - 1.0).abs() < 1e-9,
        "{found} is not {expected}"
    );
}

#[test]
fn work_is_joined_with_the_power_of_its_gpus_whatever_the_clock_on_the_wall() {
    let found = run(
        &case(),
        "--events events.jsonl --gpu gpu.csv --mqc r_mqc.json",
    );
    let efficiency = &found["efficiency"];
    near(&efficiency["flops"], 8e15);
    near(&efficiency["peak_flops_per_s"], 2.0 * 989.4e12);
    near(&efficiency["mfu"], 2e14 / (2.0 * 989.4e12));
    near(&efficiency["mean_power_w"], 1000.0);
    near(&efficiency["energy_j"], 40_000.0);
    near(&efficiency["residues_per_joule"], 0.04);
    near(&found["throughput"]["tokens_per_s"], 50.0);
    for gpu in found["gpus"].as_array().unwrap() {
        near(&gpu["mean_utilization"], 0.9);
        assert_eq!(gpu["samples"], 41);
    }
}

#[test]
fn the_same_figures_stand_in_the_table_and_in_the_sentences() {
    let case = case();
    let output =
        case.run("report --events events.jsonl --gpu gpu.csv --out r.json --mqc r_mqc.json");
    let stderr = text(&output.stderr);
    assert_contains(&stderr, "MFU 10.1 %, 0.04 residues/J, 1000 W");
    assert_contains(
        &stderr,
        "ok: gpu 1 (NVIDIA H100 80GB HBM3): it was kept busy",
    );
    let table: Value = serde_json::from_str(&case.read("r_mqc.json")).unwrap();
    let row = &table["data"]["r"];
    near(&row["mfu_percent"], 100.0 * 2e14 / (2.0 * 989.4e12));
    near(&row["residues_per_j"], 0.04);
    near(&row["gpu_percent"], 90.0);
    assert_eq!(row["gpu"], "2 x NVIDIA H100 80GB HBM3");
    let headers = table["headers"].as_object().unwrap();
    assert!(
        row.as_object()
            .unwrap()
            .keys()
            .all(|name| headers.contains_key(name))
    );
}

#[test]
fn a_measured_peak_takes_the_place_of_the_named_one() {
    let case = case();
    near(
        &run(&case, "--events events.jsonl --peak-tflops 400")["efficiency"]["mfu"],
        0.25,
    );
    let cpu = events()
        .replace("\"cuda\"", "\"cpu\"")
        .replace("\"gpu_uuids\":[\"GPU-0\",\"GPU-1\"],", "");
    case.write("cpu.jsonl", &cpu);
    near(
        &run(&case, "--events cpu.jsonl --peak-tflops 0.4e3")["efficiency"]["mfu"],
        0.5,
    );
    let unknown = run(&case, "--events cpu.jsonl --gpu gpu.csv");
    for figure in [
        "mfu",
        "peak_flops_per_s",
        "mean_power_w",
        "energy_j",
        "residues_per_joule",
    ] {
        assert!(unknown["efficiency"][figure].is_null(), "{figure}");
    }
    assert_eq!(unknown["gpus"], Value::Array(Vec::new()));
    for wrong in ["0", "-1", "NaN", "inf", "fast"] {
        let output = case.run(&format!(
            "report --events events.jsonl --out r.json --peak-tflops={wrong}"
        ));
        assert_eq!(output.status.code(), Some(2));
        let stderr = text(&output.stderr);
        assert_contains(&stderr, "expected a number above 0");
    }
}

#[test]
fn a_folder_stands_for_the_logs_in_it() {
    let case = case();
    let whole = run(&case, "--events events.jsonl --gpu gpu.csv");
    std::fs::create_dir(case.path("logs")).unwrap();
    // An interrupted attempt at the same run, in files of its own.
    let (first, rest) = (events(), samples());
    let header = rest.lines().next().unwrap();
    let half = rest.match_indices('\n').nth(60).unwrap().0 + 1;
    let split = first.match_indices('\n').nth(2).unwrap().0 + 1;
    let start = first.lines().next().unwrap();
    let job = |line: &str, run: &str| {
        line.replace("\"run\":\"r\"", &format!("\"run\":\"{run}\",\"job\":\"j\""))
    };
    case.write("logs/1.jsonl", &job(&first[..split], "r1"));
    let second = format!("{start}\n{}", &first[split..]);
    case.write("logs/2.jsonl", &job(&second, "r2"));
    case.write("logs/.hidden.jsonl", "no log");
    case.write("logs/1.csv", &rest[..half]);
    case.write("logs/2.csv", &format!("{header}\n{}", &rest[half..]));
    let joined = run(&case, "--events logs --gpu logs");
    assert_eq!(
        (&joined["run"], &joined["attempts"]),
        (&"r2".into(), &2.into())
    );
    for figure in ["tokens", "residues", "batches", "gpus"] {
        assert_eq!(joined[figure], whole[figure], "{figure}");
    }
    let named = run(
        &case,
        "--events logs/1.jsonl logs/2.jsonl --gpu logs/1.csv logs/2.csv",
    );
    assert_eq!(named, joined);
}

#[test]
fn one_gpu_without_samples_leaves_energy_and_mfu_unknown() {
    let case = case();
    let one: String = samples()
        .split_inclusive('\n')
        .filter(|line| !line.contains("GPU-1"))
        .collect();
    case.write("gpu.csv", &one);
    let found = run(&case, "--events events.jsonl --gpu gpu.csv");
    near(&found["gpus"][0]["mean_power_w"], 500.0);
    for figure in ["mfu", "mean_power_w", "energy_j", "residues_per_joule"] {
        assert!(found["efficiency"][figure].is_null(), "{figure}");
    }
}

#[test]
fn failing_hardware_is_a_negative_verdict_and_other_findings_are_told_only() {
    let case = case();
    let exit = |from: &str, to: &str| {
        case.write("gpu.csv", &samples().replace(from, to));
        let args = "report --events events.jsonl --gpu gpu.csv --out r.json --fail-on mild";
        let output = case.run(args);
        (output.status.code().unwrap(), text(&output.stderr))
    };
    assert_eq!(exit("GPU-9", "").0, 0);
    let (code, told) = exit(",21500,none,0,0\n", ",21500,none,0,1\n");
    assert_eq!(code, 1, "{told}");
    assert_contains(
        &told,
        "critical: gpu 0 (NVIDIA H100 80GB HBM3): 1 memory errors",
    );
    let (code, told) = exit(",none,0,0\n", ",sw_thermal_slowdown,0,0\n");
    assert_eq!(code, 1, "{told}");
    assert_contains(&told, "sw_thermal_slowdown in 100.0 % of the samples");
    let (code, told) = exit(",none,0,0\n", ",sw_power_cap,2,0\n");
    assert_eq!(code, 0, "{told}");
    assert_contains(
        &told,
        "mild: gpu 1 (NVIDIA H100 80GB HBM3): others computed on it",
    );
    assert_contains(&told, "sw_power_cap in 100.0 % of the samples");
}
