//! `report` on logs whose sums are known.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use plmkit_logs::thresholds;
use serde_json::Value;

use crate::case::{Case, HEADER, assert_contains, fixture, text};
use crate::common::{assert_failed, paths, visible};

const BOTH: &str = "--events events.jsonl --gpu gpu.csv";

/// Compares with a golden file; `GOLDEN=write` writes it.
fn assert_golden(name: &str, found: &str) {
    let path = fixture(name);
    if std::env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "{}", path.display());
}

#[test]
fn the_entire_report_is_as_expected() {
    let case = Case::with_logs();
    let args = format!("report {BOTH} --out report.json --mqc sample_mqc.json");
    let (code, stderr) = case.code_and_stderr(&args);
    assert_eq!(code, 0, "{stderr}");
    assert_golden("report.json", &case.read("report.json"));
    assert_golden("sample_mqc.json", &case.read("sample_mqc.json"));
    // No sentences beside the files, but for the verdict.
    assert!(
        stderr.starts_with("monitor-log: verdict: mild: 2 runs: ") && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert_golden("report.txt", &case.printed(BOTH));
}

#[test]
fn a_torn_last_line_is_left_out_and_reported() {
    let case = Case::with_logs();
    let complete = case.report(BOTH);
    for name in ["events.jsonl", "gpu.csv"] {
        let text = case.read(name);
        let last = text.trim_end().lines().last().unwrap();
        case.write(name, &format!("{text}{}", &last[..last.len() - 3]));
    }
    let mut torn = case.report(BOTH);
    let logs = torn["torn"].take();
    assert_eq!(logs, serde_json::json!(["events.jsonl", "gpu.csv"]));
    torn["torn"] = complete["torn"].clone();
    assert_eq!(torn, complete);
}

#[test]
fn a_verdict_is_a_failure_if_asked_for() {
    let case = Case::with_logs();
    let log = case.read("events.jsonl");
    let poor = log.replace("\"token_budget\":1000,\"oom", "\"token_budget\":3000,\"oom");
    case.write("poor.jsonl", &poor);
    for (args, expected) in [
        // The GPU of the runs was 70 % busy: mild.
        ("--events events.jsonl --gpu gpu.csv --fail-on mild", 1),
        ("--events events.jsonl --gpu gpu.csv --fail-on critical", 0),
        ("--events events.jsonl --gpu gpu.csv", 0),
        // The batches were well filled, and the device had no work for 20 % of the time.
        ("--events events.jsonl --fail-on mild", 1),
        ("--events events.jsonl --fail-on critical", 0),
        // The idle time before and after the runs counts as well.
        ("--gpu gpu.csv --fail-on mild", 1),
        ("--events poor.jsonl --fail-on critical", 1),
    ] {
        let (code, stderr) = case.code_and_stderr(&format!("report --out report.json {args}"));
        assert_eq!(code, expected, "{args}");
        let is_warned = stderr.contains("warning: the verdict is");
        assert_eq!(is_warned, code == 1, "{args}");
    }
    let files = [
        "driver",
        "events.jsonl",
        "gpu.csv",
        "poor.jsonl",
        "report.json",
    ];
    assert_eq!(visible(&case.path("")), files);
}

#[test]
fn without_known_figures_there_is_no_verdict_and_no_failure() {
    let case = Case::new();
    case.write("events.jsonl", "");
    case.write("gpu.csv", HEADER);
    let report = case.report(&format!("{BOTH} --mqc r_mqc.json"));
    assert!(report["verdict"].is_null());
    assert_eq!(report["runs"], Value::Array(Vec::new()));
    assert!(report["gpus"].as_array().unwrap().is_empty());
    let args = format!("report {BOTH} --out r.json --fail-on mild");
    let (code, stderr) = case.code_and_stderr(&args);
    assert_eq!(code, 0);
    assert_contains(&stderr, "no verdict");
}

#[test]
fn bad_input_is_one_line_with_the_line_number_and_leaves_nothing() {
    let case = Case::with_logs();
    case.write(
        "cut.jsonl",
        "{\"type\":\"run\",\"run\":\"a\"}\n{\"type\":\"batch\",\"ru\n{\"type\":\"run\",\"run\":\"b\"}\n",
    );
    let bad = ",x".repeat(HEADER.matches(',').count());
    case.write("bad.csv", &format!("{HEADER}2026-01-31T12:00:00Z{bad}\n"));
    case.write("other.csv", "id,length\nP1,3\n");
    let log = case.read("events.jsonl");
    let absurd = log.replace("\"tokens\":1000,", "\"tokens\":9000000000000000000,");
    case.write("absurd.jsonl", &absurd);
    let cases = "
        --events cut.jsonl: 65: cut.jsonl: line 2: not a run event
        --events gpu.csv: 65: gpu.csv: expected a log of run events, found a log of GPU samples
        --events other.csv: 65: other.csv: line 1: not a run event
        --events absurd.jsonl: 65: absurd.jsonl: line 2: tokens is out of range
        --events missing.jsonl: 66: missing.jsonl: cannot open: no such file or directory
        --events driver: 66: driver: expected files named *.jsonl in this folder, found none
        --gpu bad.csv: 65: bad.csv: line 2: column 'boot_s': expected a number as record writes it, found 'x'
        --gpu other.csv: 65: other.csv: line 1: not a GPU sample log
        --gpu missing.csv: 66: missing.csv: cannot open: no such file or directory
        --gpu driver: 66: driver: expected files named *.csv in this folder, found none
    ";
    for line in cases.trim().lines() {
        let parts: Vec<&str> = line.trim().splitn(3, ": ").collect();
        let output = case.run(&format!("report --quiet --out report.json {}", parts[0]));
        assert_failed(&output, parts[1].parse().unwrap(), parts[2]);
        let is_input_error = parts[1] != "73";
        assert!(
            !(is_input_error && case.path("report.json").exists()),
            "{line}"
        );
    }
    for (outputs, file) in [
        ("--out no/such/r.json", "r.json"),
        ("--out r --html no/such/r.html", "r.html"),
    ] {
        let output = case.run(&format!("report --quiet --events events.jsonl {outputs}"));
        let what = format!("no/such/{file}: cannot create: no such file or directory");
        assert_failed(&output, 73, &what);
    }
}

#[test]
fn what_is_no_file_in_a_folder_of_logs_is_told() {
    let case = Case::with_logs();
    std::fs::create_dir(case.path("logs")).unwrap();
    std::fs::copy(case.path("events.jsonl"), case.path("logs/a.jsonl")).unwrap();
    std::os::unix::fs::symlink("nothing", case.path("logs/b.jsonl")).unwrap();
    let (code, stderr) = case.code_and_stderr("report --events logs --out r.json");
    assert_eq!(code, 0, "{stderr}");
    assert_contains(&stderr, "logs/b.jsonl: cannot open: not a regular file");
}

/// The recordings of the acceptance on GPUs, with figures that such a GPU can have.
#[test]
fn recorded_samples_have_plausible_figures() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/results");
    let files = |extension: &str| -> Vec<PathBuf> {
        let found = paths(&results).into_iter();
        found
            .filter(|path| path.extension() == Some(extension.as_ref()))
            .filter(|path| !path.ends_with("nvidia-smi.csv"))
            .collect()
    };
    let (case, mut joined) = (Case::new(), 0);
    let samples = files("csv");
    for path in &samples {
        let name = path.file_name().unwrap().to_string_lossy();
        let events = name.replace("samples", "events").replace("csv", "jsonl");
        let events = path.with_file_name(events);
        let mut args = format!("--gpu {}", path.display());
        if events.exists() {
            let _ = write!(args, " --events {}", events.display());
        }
        let report = case.report(&args);
        assert_eq!(report["torn"], Value::Array(vec![]), "{args}");
        let [gpu] = &report["gpus"].as_array().unwrap()[..] else {
            panic!("{args}")
        };
        assert_eq!(gpu["coverage"], 1.0);
        for (figure, least, most) in [
            ("gpu_util", 80.0, 100.0),
            ("power_w", 550.0, 700.0),
            ("mem_used_mib", 3000.0, 5000.0),
            ("temperature_c", 40.0, 80.0),
        ] {
            let mean = gpu["values"][figure]["mean"].as_f64().unwrap();
            assert!((least..=most).contains(&mean), "{args}: {figure} {mean}");
        }
        if events.exists() {
            joined += 1;
            let mfu = report["runs"][0]["efficiency"]["mfu"].as_f64().unwrap();
            assert!((0.40..0.45).contains(&mfu), "{args}: {mfu}");
            let residues = report["runs"][0]["efficiency"]["residues_per_joule"].as_f64();
            assert!((400.0..500.0).contains(&residues.unwrap()), "{args}");
        }
    }
    assert_eq!((samples.len(), joined), (9, 7));
}

/// The limits that help and pages name are those of the code.
#[test]
fn help_and_pages_name_the_limits_of_a_gpu() {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("docs")
            .join(name);
        one_line(&fs::read_to_string(path).unwrap())
    };
    let help = |command: &str| one_line(&text(&Case::new().run(command).stdout));
    let (low, high) = thresholds::GPU_NORMAL_C.into_inner();
    let normal = format!("{low} to {high} °C");
    let percent = |share: f64| format!("above {:.0} %", 100.0 * share);
    let full = percent(thresholds::MEMORY_CRITICAL_ABOVE);
    let nearly_full = percent(thresholds::MEMORY_MILD_ABOVE);
    for (text, parts) in [
        (help("report --help"), vec![&normal, &full, &nearly_full]),
        (help("top --help"), vec![&normal, &full]),
        (page("monitor-log.md"), vec![&normal, &full, &nearly_full]),
        (page("slow-runs.md"), vec![&full]),
    ] {
        for part in parts {
            assert_contains(&text, part);
        }
    }
}

#[test]
fn an_input_is_never_overwritten() {
    let case = Case::with_logs();
    let before = case.read("events.jsonl");
    for outputs in [
        "--out events.jsonl",
        "--out ./events.jsonl",
        "--out r --mqc events.jsonl",
        "--out r --mqc ./r",
        "--out r --html events.jsonl",
        "--out r --html ./r",
    ] {
        let output = case.run(&format!("report --events events.jsonl {outputs}"));
        assert_failed(&output, 2, "are the same file");
    }
    case.write("list", "events.jsonl\n");
    for outputs in ["--out list", "--out r --mqc list", "--out r --html list"] {
        let output = case.run(&format!("report --events @list {outputs}"));
        assert_failed(&output, 2, "and a list of files are the same file");
    }
    case.write("data", "PAR1");
    let output = case.run("report --events @list --out data");
    assert_failed(
        &output,
        73,
        "--out data: exists, and is a Parquet file of another program",
    );
    assert_eq!(
        (case.read("list"), case.read("data")),
        ("events.jsonl\n".into(), "PAR1".into())
    );
    assert_eq!(case.run("report").status.code(), Some(2));
    assert_eq!(case.read("events.jsonl"), before);
}

#[test]
fn samples_from_outside_all_runs_are_reported_and_judge_nothing() {
    let case = Case::with_logs();
    let other = case.read("gpu.csv").replace(",boot-1,", ",boot-1,9");
    case.write("gpu.csv", &other);
    case.report(&format!("{BOTH} --html r.html --fail-on critical"));
    let printed = case.printed(BOTH);
    for text in [&printed, &case.read("r.html")] {
        assert_contains(text, "its samples cover 0.0 % of the run");
    }
    assert!(!printed.contains("it was idle"), "{printed}");
}

#[test]
fn text_from_a_log_does_not_control_the_terminal() {
    let case = Case::with_logs();
    let log = case.read("events.jsonl");
    for (name, shown) in [
        ("a\u{1b}[31m\n\u{202e}", "a\\u{1b}[31m\\n\\u{202e}"),
        (&"\0".repeat(1000), "\\u{0}\\u{0}"),
    ] {
        let named = format!("\"run\":{}", serde_json::to_string(name).unwrap());
        case.write("events.jsonl", &log.replace("\"run\":\"a\"", &named));
        let reported = case.run("report --events events.jsonl");
        let listed = case.run("top --once --events events.jsonl");
        for text in [text(&reported.stdout), text(&listed.stdout)] {
            assert_contains(&text, shown);
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\0']), "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() < 500),
                "{text}"
            );
        }
    }
}

#[test]
fn the_page_is_self_contained_and_has_the_content_of_the_report() {
    let case = Case::with_logs();
    case.report("--events events.jsonl --gpu gpu.csv --html r.html");
    let page = case.read("r.html");
    for part in [
        "<h1>Embedding runs</h1>",
        "verdict: mild</span>",
        "gpu 0 (Fake, 0, GPU-0)",
        "it was idle part of the time",
        ">2,890</td>",
        "<figcaption>tokens/s: at most ",
        "utilization in %: at most 100, over ",
        "<title>a</title>",
        "prefers-color-scheme: dark",
        "@media print",
    ] {
        assert_contains(&page, part);
    }
    // A column without a known cell is left out.
    assert!(!page.contains("MFU"), "{page}");
    let count = |part: &str| page.matches(part).count();
    assert_eq!(count("<svg "), count("</svg>"));
    let external = [
        "http:", "https:", "<script", "<link", "<img", "url(", "@import",
    ];
    for part in external {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn runs_are_named_by_sample_and_shard() {
    let case = Case::with_logs();
    let results = case.path("R");
    for name in ["a", "b"] {
        case.write(&format!("{name}.fasta"), &format!(">{name}\nMKTAYIAKQR\n"));
    }
    let embed = |force: &[&str]| {
        let mut plmkit = crate::common::bin("plmkit");
        plmkit.args(["a.fasta", "b.fasta", "--out", "R", "--quiet"]);
        plmkit
            .args(force)
            .arg("--model")
            .arg(crate::common::test_data("model-tiny"));
        crate::common::run(plmkit.current_dir(case.path(".")));
    };
    embed(&[]);
    let names = |options: &str| -> Vec<String> {
        let report = case.report(options);
        let runs = report["runs"].as_array().expect("runs").iter();
        runs.map(|run| run["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names("--events R"), ["a/shard-00000", "b/shard-00000"]);
    // Of a log of an older version, and of work that was done twice.
    let log = results.join("a/logs/shard-00000.events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let other = text.replace("\"output\":\"shard-00000.parquet\",", "");
    case.write("old.jsonl", &other.replace("\"run\":\"2", "\"run\":\"1"));
    let all = ["a/shard-00000", "a/old", "b/shard-00000"];
    assert_eq!(names("--events R old.jsonl"), all);
    case.write("again.jsonl", &text.replace("\"run\":\"2", "\"run\":\"3"));
    let all = ["a/shard-00000", "a/shard-00000 #2", "b/shard-00000"];
    assert_eq!(names("--events R again.jsonl"), all);
}

/// As the page of a folder of results has them.
#[test]
fn the_logs_of_samples_are_one_report_and_what_cannot_be_read_is_left_out() {
    let case = Case::with_logs();
    let events = case.read("events.jsonl");
    let of = |sample: &str| {
        let named =
            format!("\"run\":\"a\",\"sample\":\"{sample}\",\"output\":\"shard-00000.parquet\"");
        events.replace("\"run\":\"a\"", &named)
    };
    for sample in ["A", "B", "C"] {
        fs::create_dir_all(case.path(&format!("R/{sample}/logs"))).unwrap();
        case.write(&format!("R/{sample}/logs/1.jsonl"), &of(sample));
    }
    case.write("R/A/logs/1.csv", &case.read("gpu.csv"));
    // Its first line is well-formed.
    case.write(
        "R/C/logs/0.jsonl",
        &(events.lines().next().unwrap().to_owned() + "\nx\nx\n"),
    );
    case.write("R/C/logs/2.jsonl", "x\nx\n");
    let folders = ["A", "B", "C", "D"].map(|sample| case.path(&format!("R/{sample}/logs")));
    let report = plmkit_programs::monitor_log::report_of(&folders).unwrap();
    let runs = report.runs.as_ref().unwrap();
    let mut names: Vec<&str> = runs.iter().map(|run| &*run.name).collect();
    names.sort_unstable();
    assert_eq!(
        &names[..3],
        ["A/shard-00000", "B/shard-00000", "C/shard-00000"]
    );
    assert_eq!(
        (
            report.gpus.as_ref().unwrap().len(),
            report.headline().1.as_str()
        ),
        (2, "verdict: mild")
    );
    let nothing = plmkit_programs::monitor_log::report_of(&folders[3..]).unwrap();
    assert_eq!((nothing.runs, nothing.gpus), (None, None));
}

#[test]
fn a_run_on_a_cpu_has_no_gpu_hours_and_the_share_of_its_threads() {
    let case = Case::with_logs();
    let log = case.read("events.jsonl").replace("cuda:0", "cpu");
    let log = log.replace("\"elapsed_s\":12.5", "\"elapsed_s\":12.5,\"cpu_s\":20.0");
    case.write(
        "events.jsonl",
        &log.replace(",\"gpu_uuids\":[\"GPU-0\"]", ""),
    );
    let (code, stderr) =
        case.code_and_stderr("report --events events.jsonl --out r.json --fail-on mild");
    assert_eq!(code, 1, "{stderr}");
    let printed = case.printed("--events events.jsonl");
    assert!(!printed.contains("GPU hours"), "{printed}");
    // 20 of the 40 seconds of 4 threads in 10 s.
    assert_contains(
        &printed,
        "mild: run a: its 4 threads had a core in 50.0 % of the computing time: look at other work",
    );
    let report: Value = serde_json::from_str(&case.read("r.json")).unwrap();
    assert_eq!(
        (
            &report["runs"][0]["gpu_hours"],
            &report["runs"][0]["cpu_share"]
        ),
        (&Value::Null, &0.5.into())
    );
}
