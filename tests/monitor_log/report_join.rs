//! `report` on a run of known work, on GPUs of known power, by clocks that may jump.

use std::fmt::Write;

use serde_json::Value;

use crate::case::{Case, assert_contains};

/// A run of 40 s with four batches of 500 tokens and 400 residues. After 20 s, its wall clock is put forward by an hour.
/// 2e12 operations for a token and 1e9 for each of 1e6 pairs a batch are 8e15 in all.
fn events() -> String {
    let mut log = "{\"type\":\"run\",\"run\":\"r\",\"time\":\"2026-01-31T12:00:10.000Z\",\"boot_id\":\"b\",\"boot_s\":10.0,\"device\":\"cuda\",\
        \"dtype\":\"bf16\",\"gpu_uuids\":[\"GPU-0\",\"GPU-1\"],\"gpu_names\":[\"NVIDIA H100 80GB HBM3\",\"NVIDIA H100 80GB HBM3\"],\"flops_per_token\":2000000000000,\"flops_per_pair\":1000000000}\n".to_owned();
    for batch in 0..4 {
        let hour = if batch < 2 { 12 } else { 13 };
        let (elapsed, second) = (batch * 10 + 10, batch * 10 + 20);
        let _ = writeln!(
            log,
            "{{\"type\":\"batch\",\"run\":\"r\",\"batch\":{batch},\"time\":\"2026-01-31T{hour}:00:{second}.000Z\",\
             \"boot_s\":{second}.0,\"elapsed_s\":{elapsed}.0,\"wait_ms\":0.5,\"compute_ms\":9800,\"sequences\":50,\"tokens\":500,\
             \"residues\":400,\"pairs\":1000000,\"token_budget\":512,\"queue_depth\":3}}"
        );
    }
    log + "{\"type\":\"done\",\"run\":\"r\",\"time\":\"2026-01-31T13:00:50.000Z\",\"boot_s\":50.0,\"sequences\":200,\"tokens\":2000,\
           \"residues\":1600,\"elapsed_s\":40.0,\"outcome\":\"done\"}\n"
}

/// Two H100 with a row a second, from 10 s before the run to 10 s after it. Each uses 500 W during the run, and 100 W before
/// and after. The wall clock is that of the run.
fn samples() -> String {
    let mut log =
        "timestamp,boot_id,boot_s,index,uuid,name,gpu_util,power_w,energy_j,throttle,ecc_uncorrected\n".to_owned();
    let mut energy_j = 1000;
    for at in 0..=60 {
        let hour = if at <= 30 { 12 } else { 13 };
        let (minute, second) = (at / 60, at % 60);
        let busy = if (10..=50).contains(&at) { 90 } else { 0 };
        for gpu in 0..2 {
            let _ = writeln!(
                log,
                "2026-01-31T{hour}:{minute:02}:{second:02}.000Z,b,{at},{gpu},GPU-{gpu},NVIDIA H100 80GB HBM3,{busy},,{energy_j},none,0"
            );
        }
        energy_j += if (10..50).contains(&at) { 500 } else { 100 };
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
    case.report(args)["runs"][0].take()
}

#[track_caller]
fn assert_near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    let is_near = (found / expected - 1.0).abs() < 1e-9;
    assert!(is_near, "{found} is not {expected}");
}

#[track_caller]
fn assert_unknown(run: &Value, figures: &[&str]) {
    for figure in figures {
        assert!(run["efficiency"][figure].is_null(), "{figure}");
    }
}

#[test]
fn work_is_joined_with_the_power_of_its_gpus_for_any_wall_clock() {
    let case = case();
    let logs = "--events events.jsonl --gpu gpu.csv";
    let report = case.report(&format!("{logs} --mqc r_mqc.json"));
    let printed = case.printed(logs);
    let run = &report["runs"][0];
    let mfu = 2e14 / (2.0 * 989.4e12);
    for (figure, expected) in [
        ("flops", 8e15),
        ("possible_flops", 2.0 * 989.4e12 * 40.0),
        ("mfu", mfu),
        ("energy_j", 40_000.0),
        ("residues_per_joule", 0.04),
    ] {
        assert_near(&run["efficiency"][figure], expected);
    }
    assert_near(&run["throughput"]["tokens_per_s"], 50.0);
    for gpu in run["gpus"].as_array().unwrap() {
        assert_near(&gpu["values"]["gpu_util"]["mean"], 90.0);
        assert_eq!(
            (&gpu["samples"], &gpu["coverage"]),
            (&40.into(), &1.0.into())
        );
    }

    for figure in [
        "MFU 10.1 %",
        "energy 25,000.000 mJ/residue",
        "mean power 500 W",
    ] {
        assert_contains(&printed, figure);
    }
    let kept_busy = "ok: gpu 1 (NVIDIA H100 80GB HBM3, GPU-1): it was kept busy";
    assert_contains(&printed, kept_busy);

    let table: Value = serde_json::from_str(&case.read("r_mqc.json")).unwrap();
    let row = &table["data"]["r"];
    assert_near(&row["mfu_percent"], 100.0 * mfu);
    assert_near(&row["mj_per_residue"], 25_000.0);
    assert_near(&row["gpu_percent"], 90.0);
    let mut columns = row.as_object().unwrap().keys();
    assert!(columns.all(|column| table["headers"].get(column).is_some()));
}

#[test]
fn runs_of_one_sample_are_one_row_for_multiqc() {
    let case = case();
    let of_sample = |sample: &str, name: &str| {
        let named = format!("\"run\":\"{name}\",\"sample\":\"{sample}\"");
        events().replace("\"run\":\"r\"", &named)
    };
    let rows = || {
        let args =
            "report --events a.jsonl b.jsonl --gpu gpu.csv --out r.json --mqc soil_run_mqc.json";
        let (code, stderr) = case.code_and_stderr(args);
        assert_eq!(code, 0, "{stderr}");
        let table: Value = serde_json::from_str(&case.read("soil_run_mqc.json")).unwrap();
        table["data"].as_object().unwrap().clone()
    };
    case.write("a.jsonl", &of_sample("soil", "r1"));
    case.write("b.jsonl", &of_sample("soil", "r2"));
    let of_sample_alone = rows();
    assert_eq!(of_sample_alone.len(), 1);
    let row = &of_sample_alone["soil_run"];
    assert_eq!(row["sequences"], 400);
    // They ran at the same time.
    assert_near(&row["tokens_per_s"], 100.0);
    assert_near(&row["residues_per_s"], 80.0);
    assert_eq!(row["outcome"], "done");

    case.write("b.jsonl", &of_sample("lake", "r2"));
    assert_eq!(rows().len(), 2);

    let named = of_sample("soil", "r2");
    let (unfinished, _) = named.split_once("{\"type\":\"done\"").unwrap();
    case.write("b.jsonl", unfinished);
    assert_eq!(rows()["soil_run"]["outcome"], "no end");
}

#[test]
fn a_measured_peak_replaces_the_named_one() {
    let case = case();
    let cpu = events().replace("\"cuda\"", "\"cpu\"");
    let gpus = cpu.find("\"gpu_uuids\"").unwrap()..cpu.find("\"flops_per_token\"").unwrap();
    let cpu = cpu.replace(&cpu[gpus], "");
    case.write("cpu.jsonl", &cpu);
    for (args, mfu) in [
        ("--events events.jsonl --peak-tflops 400", 0.25),
        ("--events cpu.jsonl --peak-tflops 0.4e3", 0.5),
    ] {
        assert_near(&run(&case, args)["efficiency"]["mfu"], mfu);
    }
    let unknown = run(&case, "--events cpu.jsonl --gpu gpu.csv");
    let figures = ["mfu", "possible_flops", "energy_j", "residues_per_joule"];
    assert_unknown(&unknown, &figures);
    assert_eq!(unknown["gpus"], Value::Array(Vec::new()));
    for invalid in ["0", "-1", "NaN", "inf", "fast"] {
        let args = format!("report --events events.jsonl --out r.json --peak-tflops={invalid}");
        let (code, stderr) = case.code_and_stderr(&args);
        assert_eq!(code, 2);
        assert_contains(&stderr, "expected a number above 0");
    }
}

#[test]
fn a_folder_stands_for_the_logs_in_it() {
    let case = case();
    let single = run(&case, "--events events.jsonl --gpu gpu.csv");
    std::fs::create_dir(case.path("logs")).unwrap();
    // Two attempts at the run, in separate files.
    let (events, samples) = (events(), samples());
    let (header, start) = (
        samples.lines().next().unwrap(),
        events.lines().next().unwrap(),
    );
    let half = samples.match_indices('\n').nth(60).unwrap().0 + 1;
    let split = events.match_indices('\n').nth(2).unwrap().0 + 1;
    let attempt = |events: &str, run: &str| {
        events.replace("\"run\":\"r\"", &format!("\"run\":\"{run}\",\"job\":\"j\""))
    };
    let second = format!("{start}\n{}", &events[split..]);
    case.write("logs/1.jsonl", &attempt(&events[..split], "r1"));
    case.write("logs/2.jsonl", &attempt(&second, "r2"));
    case.write("logs/.hidden.jsonl", "no log");
    case.write("logs/1.csv", &samples[..half]);
    case.write("logs/2.csv", &format!("{header}\n{}", &samples[half..]));
    let joined = run(&case, "--events logs --gpu logs");
    assert_eq!(
        (&joined["run"], &joined["attempts"]),
        (&"r2".into(), &2.into())
    );
    for figure in ["tokens", "residues", "batches", "gpus"] {
        assert_eq!(joined[figure], single[figure], "{figure}");
    }
    let files = "--events logs/1.jsonl logs/2.jsonl --gpu logs/1.csv logs/2.csv";
    assert_eq!(run(&case, files), joined);
}

#[test]
fn one_gpu_without_samples_leaves_the_energy_unknown() {
    let case = case();
    let samples = samples();
    let lines = samples.split_inclusive('\n');
    let one: String = lines.filter(|line| !line.contains("GPU-1")).collect();
    case.write("gpu.csv", &one);
    let found = run(&case, "--events events.jsonl --gpu gpu.csv");
    assert_near(&found["gpus"][0]["energy_j"], 20_000.0);
    let unknown = ["energy_j", "residues_per_joule"];
    assert_unknown(&found, &unknown);
    let without = &found["gpus"][1];
    assert_eq!(
        (&without["uuid"], &without["samples"]),
        (&"GPU-1".into(), &0.into())
    );
    assert_eq!(without["coverage"], 0.0);
}
