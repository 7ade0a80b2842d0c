//! `report` on logs whose sums are known.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::case::{Case, HEADER, assert_contains, fixture, text};
use crate::common::{assert_failed, visible};

/// A case with the logs of two runs on the first of two GPUs, and nothing else to be seen.
fn logs() -> Case {
    let case = Case::new();
    for name in ["events.jsonl", "gpu.csv"] {
        fs::copy(fixture(name), case.path(name)).unwrap();
    }
    case
}

fn report(case: &Case, args: &str) -> Value {
    let output = case.run(&format!("report --out report.json {args}"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(&case.read("report.json")).unwrap()
}

/// Compares with a golden file; `GOLDEN=write` makes it anew.
fn assert_golden(name: &str, found: &str) {
    let path = fixture(name);
    if std::env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
        fs::write(&path, found).unwrap();
    }
    assert_eq!(
        found,
        fs::read_to_string(&path).unwrap(),
        "{}",
        path.display()
    );
}

#[test]
fn the_whole_report_is_as_expected() {
    let case = logs();
    let output = case
        .run("report --events events.jsonl --gpu gpu.csv --out report.json --mqc sample_mqc.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_golden("report.json", &case.read("report.json"));
    assert_golden("sample_mqc.json", &case.read("sample_mqc.json"));
    assert_golden("report.txt", &text(&output.stderr));
}

#[test]
fn a_torn_last_line_is_left_out_and_said() {
    let case = logs();
    let whole = report(&case, "--events events.jsonl --gpu gpu.csv");
    for name in ["events.jsonl", "gpu.csv"] {
        let text = case.read(name);
        let last = text.trim_end().lines().last().unwrap();
        case.write(name, &format!("{text}{}", &last[..last.len() - 3]));
    }
    let mut torn = report(&case, "--events events.jsonl --gpu gpu.csv");
    for log in ["events", "samples"] {
        assert_eq!(torn[log]["torn_last_line"].take(), true);
        torn[log]["torn_last_line"] = false.into();
    }
    assert_eq!(torn, whole);
}

#[test]
fn a_verdict_is_a_failure_where_asked_for() {
    let case = logs();
    let exit = |args: &str| {
        let output = case.run(&format!("report --out report.json {args}"));
        (
            output.status.code().unwrap(),
            text(&output.stderr).contains("warning: the verdict is"),
        )
    };
    // The GPU of the runs was 70 % busy: mild.
    assert_eq!(
        exit("--events events.jsonl --gpu gpu.csv --fail-on mild"),
        (1, true)
    );
    assert_eq!(
        exit("--events events.jsonl --gpu gpu.csv --fail-on critical"),
        (0, false)
    );
    assert_eq!(exit("--events events.jsonl --gpu gpu.csv"), (0, false));
    assert_eq!(
        visible(&case.path("")),
        ["driver", "events.jsonl", "gpu.csv", "report.json"]
    );
    // The batches alone were well filled.
    assert_eq!(exit("--events events.jsonl --fail-on mild"), (0, false));
    // Over the whole recording, with idle time before and after, it is still the one GPU that is known.
    assert_eq!(exit("--gpu gpu.csv --fail-on mild"), (1, true));
    case.write(
        "poor.jsonl",
        &case
            .read("events.jsonl")
            .replace("\"utilization\":0.95", "\"utilization\":0.3"),
    );
    assert_eq!(exit("--events poor.jsonl --fail-on critical"), (1, true));
}

#[test]
fn where_nothing_is_known_there_is_no_verdict_and_no_failure() {
    let case = Case::new();
    case.write("events.jsonl", "");
    case.write("gpu.csv", HEADER);
    let output = case.run(
        "report --events events.jsonl --gpu gpu.csv --out r.json --mqc r_mqc.json --fail-on mild",
    );
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("no verdict"));
    let report: Value = serde_json::from_str(&case.read("r.json")).unwrap();
    assert!(report["verdict"].is_null());
    assert_eq!(report["events"]["runs"], Value::Array(Vec::new()));
    assert!(report["samples"]["host"]["mean_cpu_utilization"].is_null());
}

#[test]
fn bad_input_is_one_line_with_the_line_number_and_leaves_nothing() {
    let case = logs();
    case.write(
        "cut.jsonl",
        "{\"type\":\"run\",\"run\":\"a\"}\n{\"type\":\"batch\",\"ru\n{\"type\":\"x\"}\n",
    );
    case.write(
        "bad.csv",
        &format!(
            "{HEADER}2026-01-31T12:00:00Z{}\n",
            ",x".repeat(HEADER.matches(',').count())
        ),
    );
    case.write("other.csv", "id,length\nP1,3\n");
    let absurd = case.read("events.jsonl");
    case.write(
        "absurd.jsonl",
        &absurd.replace("\"tokens\":1000,", "\"tokens\":9000000000000000000,"),
    );
    let cases = "
        --events cut.jsonl: 65: cut.jsonl: line 2: not a run event
        --events gpu.csv: 65: gpu.csv: expected a log of run events, found a log of GPU samples
        --events other.csv: 65: other.csv: line 1: not a run event
        --events absurd.jsonl: 65: absurd.jsonl: line 2: tokens is out of range
        --events missing.jsonl: 66: missing.jsonl: cannot open: no such file or directory
        --events driver: 66: driver: expected files named *.jsonl in this folder, found none
        --gpu bad.csv: 65: bad.csv: line 2: column 'boot_s': invalid float
        --gpu other.csv: 65: other.csv: line 1: not a GPU sample log
        --gpu missing.csv: 66: missing.csv: cannot open: no such file or directory
        --gpu driver: 66: driver: expected files named *.csv or *.parquet in this folder, found none
    ";
    for line in cases.trim().lines() {
        let parts: Vec<&str> = line.trim().splitn(3, ": ").collect();
        let output = case.run(&format!("report --quiet --out report.json {}", parts[0]));
        assert_failed(&output, parts[1].parse().unwrap(), parts[2]);
    }
    let output = case.run("report --quiet --events events.jsonl --out no/such/report.json");
    assert_failed(
        &output,
        73,
        "report.json: cannot create: no such file or directory",
    );
    assert!(!Path::new(&case.path("report.json")).exists());
}

#[test]
fn an_input_is_never_overwritten() {
    let case = logs();
    let before = case.read("events.jsonl");
    for args in [
        "--events events.jsonl --out events.jsonl",
        "--events events.jsonl --out ./events.jsonl",
        "--events events.jsonl --out r --mqc events.jsonl",
        "--events events.jsonl --out r --mqc ./r",
    ] {
        let message = "are the same file";
        assert_failed(&case.run(&format!("report {args}")), 2, message);
    }
    assert_eq!(case.run("report --out report.json").status.code(), Some(2));
    assert_eq!(case.read("events.jsonl"), before);
}

#[test]
fn samples_of_another_day_are_told_of_and_judge_nothing() {
    let case = logs();
    let other = case.read("gpu.csv").replace("2026-01-31T", "2026-02-01T");
    case.write("other.csv", &other);
    let output = case.run(
        "report --events events.jsonl --gpu other.csv --out r.json --html r.html --fail-on mild",
    );
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let note = "no sample was taken while a run was at work";
    assert!(
        stderr.contains(note) && case.read("r.html").contains(note),
        "{stderr}"
    );
    assert!(!stderr.contains("idle"), "{stderr}");
}

#[test]
fn a_parquet_file_is_reported_on_as_the_log_that_it_was_made_of() {
    let case = Case::with_gpus();
    assert!(case.wrap("sleep 0.5").status().unwrap().success());
    fs::create_dir(case.path("folder")).unwrap();
    let [csv, parquet] = ["gpu.csv", "folder/gpu.parquet"].map(|name| case.path(name));
    plmkit_logs::gpu_parquet::to_parquet(&csv, &parquet).unwrap();
    let of_log = report(&case, "--gpu gpu.csv");
    assert_eq!(of_log["samples"]["gpus"].as_array().unwrap().len(), 4);
    assert_eq!(report(&case, "--gpu folder/gpu.parquet"), of_log);
    assert_eq!(report(&case, "--gpu folder"), of_log);
}

#[test]
fn what_a_log_says_does_not_act_on_the_terminal() {
    for (name, shown) in [
        (
            "a\u{1b}[31m\n\u{202e}".to_owned(),
            "run a\\u{1b}[31m\\n\\u{202e}",
        ),
        ("\0".repeat(1000), "run \\u{0}\\u{0}"),
    ] {
        let case = logs();
        let named = format!("\"run\":{}", serde_json::to_string(&name).unwrap());
        let log = case.read("events.jsonl").replace("\"run\":\"a\"", &named);
        case.write("events.jsonl", &log);
        let told = text(&case.run("report --events events.jsonl --out r.json").stderr);
        let listed = text(&case.run("top --once --events events.jsonl").stdout);
        for text in [told, listed] {
            assert_contains(&text, shown);
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\0']), "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() < 500),
                "{text}"
            );
        }
    }
}
