//! `top`, printed.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::case::{Case, assert_contains, events_of_now, text};
use crate::export::Exporter;
use crate::terminal::Terminal;

/// A machine of eight GPUs, the first with MIG instances, and a run on two of them.
struct Machine {
    case: Case,
    /// A process on the GPUs, beside one that is hidden.
    owner: Child,
}

impl Machine {
    fn new() -> Self {
        let case = Case::with_gpus();
        let owner = Command::new("sleep").arg("60").spawn().unwrap();
        case.write("pids", &format!("{} 4194300", owner.id()));
        let begun = events_of_now(3, &["06.000"]);
        let begun = begun.replace("[\"GPU-0\"]", "[\"GPU-3\",\"GPU-0\"]");
        case.write("run.jsonl", &begun);
        Self { case, owner }
    }

    fn top(&self, args: &str) -> Command {
        let mut command = self.case.command(&format!("--quiet top {args}"));
        command.envs([("FAKE_NVML_GPUS", "8"), ("FAKE_NVML_MIG", "1")]);
        command.env("FAKE_NVML_PIDS", self.case.path("pids"));
        command
    }

    /// Standard output of `top`.
    fn printed(&self, args: &str) -> String {
        let output = self.top(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args}");
        text(&output.stdout)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.owner.kill();
        let _ = self.owner.wait();
    }
}

/// Leaves out the line of the machine.
fn without_host(printed: &str) -> String {
    printed.split_inclusive('\n').skip(1).collect()
}

#[test]
fn a_gpu_is_a_line_and_so_is_a_run_and_a_process() {
    let machine = Machine::new();
    let printed = machine.printed("--once");
    let title = printed.lines().next().unwrap();
    assert_contains(title, " UTC  driver 580.00  CUDA 13.0  ");
    let lines = without_host(&printed);
    let (gpus, runs) = lines.split_once("run ").unwrap();
    let expected = "\
0  97 %  12 %  61°C  251/300 W  slow     10240/81920 MiB
└        10 %                   1g.10gb   1024/10240 MiB
└        30 %                   1g.10gb   3072/10240 MiB
1   - %  14 %  62°C    -/300 W           11264/81920 MiB
2   - %     -   -°C      -/- W  lost             -/- MiB
3  10 %  12 %  64°C  120/300 W           10240/81920 MiB
4  97 %  18 %  65°C  251/300 W  slow     14336/81920 MiB
5  97 %  19 %  66°C  251/300 W  slow     15360/81920 MiB
6  97 %  20 %  67°C  251/300 W  slow     16384/81920 MiB
7  97 %  21 %  68°C  251/300 W  slow     17408/81920 MiB
";
    assert_eq!(gpus, expected);
    // After 6 s, its start decides about the idle time: it is not judged, as in a report.
    let expected = " state    done  tokens/s  idle  on       left
a    running  64 %       280  17 %  gpu 0,3  ";
    assert!(runs.starts_with(expected), "{runs}");
    assert!(
        runs.contains("\n  batch 2/4  fill 92 %, least 84 %, 1 below 85 %  wait "),
        "{runs}"
    );
    let (_, processes) = runs.split_once("\ngpu ").unwrap();
    let processes: Vec<Vec<&str>> = processes
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let pid = machine.owner.id().to_string();
    assert_eq!(processes[1][..4], ["0", &pid, "5120", "MiB"]);
    assert_eq!(processes[1][processes[1].len() - 2..], ["sleep", "60"]);
    assert_eq!(processes[2][..2], ["0", "4194300"]);
    assert_eq!(processes[2].last(), Some(&"?"));
}

#[test]
fn printed_lines_have_no_colors_on_a_terminal_either() {
    let machine = Machine::new();
    let terminal = Terminal::run(&machine.case, &machine.top("--once"), 50, 120);
    terminal.wait_for(&["7  97 %", "sleep 60"]);
    assert!(!terminal.is_colored());
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn json_has_samples_processes_and_runs() {
    let machine = Machine::new();
    let printed = machine.printed("--json");
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["cuda_version"], "13.0");
    let samples = json["samples"].as_array().unwrap();
    assert_eq!((samples.len(), &samples[0]["power_w"]), (10, &250.5.into()));
    let processes = json["processes"].as_array().unwrap();
    let [known, hidden] = [&processes[0], &processes[1]];
    assert_eq!(known["pid"], machine.owner.id());
    assert_eq!(known["command"], "sleep 60");
    assert_eq!(
        (&known["gpu_uuid"], &known["mem_used_mib"]),
        (&"GPU-0".into(), &5120.into())
    );
    assert_eq!(
        (&hidden["pid"], &hidden["command"]),
        (&4_194_300.into(), &Value::Null)
    );
    let run = &json["runs"][0];
    assert_eq!(
        (&run["state"], &run["progress"]["batches"]),
        (&"running".into(), &2.into())
    );
    assert_eq!(run["summary"]["run"], "a");
}

#[test]
fn without_a_gpu_there_are_the_runs() {
    let case = Case::with_logs();
    std::fs::create_dir(case.path("empty")).unwrap();
    for (args, runs) in [
        ("top --events empty", false),
        ("top --once", true),
        ("top --events events.jsonl", true),
    ] {
        let printed = text(&case.run(args).stdout);
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines[0].ends_with("  no GPU"), "{printed}");
        if !runs {
            assert_eq!(lines.len(), 1);
            continue;
        }
        // The second run has no times, so the time of the file counts for it.
        let expected = [
            "run  state     done  tokens/s  idle       on      left",
            "b    running   22 %        20  -          cuda:0     -",
            "a    done     100 %     231.2  20 % mild  cuda:0     -",
        ];
        assert_eq!([lines[1], lines[2], lines[4]], expected);
    }
}

#[test]
fn logs_are_found_in_subfolders_as_a_report_finds_them() {
    let case = Case::with_logs();
    std::fs::create_dir_all(case.path("results/soil/logs")).unwrap();
    let log = case.read("events.jsonl");
    case.write("results/soil/logs/shard-00000.events.jsonl", &log);
    let printed = text(&case.run("top --once --events results").stdout);
    assert_contains(&printed, "\na    done     100 %     231.2  20 % mild  ");
    let metrics = Exporter::with(&case, " --events results", &[]).metrics();
    assert_contains(&metrics, "plmkit_run_tokens_total{run=\"b\"} 100\n");
    let report = case.report("--events results");
    assert_eq!(report["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn the_start_of_a_short_run_is_judged_by_neither_top_nor_report() {
    let case = Case::with_logs();
    let long = case.read("events.jsonl");
    // A tenth of all times.
    let short = long.replace("00.0,", "0.0,").replace("12.5,", "1.25,");
    for (log, tier) in [(long, Some("mild")), (short, None)] {
        case.write("events.jsonl", &log);
        let run = case.report("--events events.jsonl")["runs"][0].take();
        assert_eq!(run["idle_tier"].as_str(), tier);
        let printed = text(&case.run("top --once --events events.jsonl").stdout);
        let idle = "  20 %".to_owned() + &tier.map_or_else(String::new, |tier| format!(" {tier}"));
        assert_contains(&printed, &format!("{idle}  cuda:0"));
    }
}

#[test]
fn a_reader_that_has_left_is_no_failure() {
    let case = Case::new();
    let mut command = case.command("top --once --quiet");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_given_file_that_is_no_log_is_a_warning() {
    let case = Case::new();
    case.write("other.txt", "other\n");
    let (code, stderr) = case.code_and_stderr("top --once --events other.txt missing.jsonl");
    assert_eq!(code, 0, "{stderr}");
    assert_contains(&stderr, "warning: other.txt: line 1: not a run event: ");
    assert_contains(&stderr, "warning: missing.jsonl: ");
}
