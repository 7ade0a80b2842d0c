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

/// Leaves out the lines of machine and host.
fn without_host(printed: &str) -> String {
    let lines = printed.split_inclusive('\n').skip(1);
    lines.filter(|line| !line.starts_with("host ")).collect()
}

#[test]
fn a_gpu_is_a_line_and_so_is_a_run_and_a_process() {
    let machine = Machine::new();
    let printed = machine.printed("--once");
    let title = printed.lines().next().unwrap();
    assert!(title.ends_with(" UTC  driver 580.00  CUDA 13.0"), "{title}");
    let widest = printed.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{printed}");
    let lines = without_host(&printed);
    let (gpus, runs) = lines.split_once("run ").unwrap();
    let expected = "\
0  97 %  10240/81920 MiB  █░░░░  12 %  61°C  251/300 W  slow
└         1024/10240 MiB  █░░░░  10 %          1g.10gb
└         3072/10240 MiB  ██░░░  30 %          1g.10gb
1   - %  11264/81920 MiB  █░░░░  14 %  62°C    -/300 W
2  lost
3  20 %  20480/81920 MiB  █░░░░  25 %  64°C  140/300 W
4  97 %  14336/81920 MiB  █░░░░  18 %  65°C  251/300 W  slow
5  97 %  15360/81920 MiB  █░░░░  19 %  66°C  251/300 W  slow
6  97 %  16384/81920 MiB  █░░░░  20 %  67°C  251/300 W  slow
7  97 %  17408/81920 MiB  █░░░░  21 %  68°C  251/300 W  slow
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
    // The name of the user is that of the test.
    let id = Command::new("id").arg("-un").output().unwrap();
    let (user, pid) = (text(&id.stdout), machine.owner.id().to_string());
    assert_eq!(processes[1][..5], ["0", &pid, user.trim(), "5120", "MiB"]);
    assert_eq!(processes[1][processes[1].len() - 2..], ["sleep", "60"]);
    assert_eq!(processes[2][..3], ["0", "4194300", "?"]);
}

#[test]
fn text_is_colored_on_a_terminal_or_if_asked_for() {
    let machine = Machine::new();
    // The time, and the figures of the host and of processes, change.
    let gpus_and_runs = |printed: &str| {
        let lines = without_host(printed);
        lines.split_once("\ngpu ").unwrap().0.to_owned()
    };
    let plain = gpus_and_runs(&machine.printed("--once"));
    let with = |args: &str, no_color: &str| {
        let output = machine.top(args).env("NO_COLOR", no_color).output();
        text(&output.unwrap().stdout)
    };
    assert_eq!(gpus_and_runs(&with("--once --color auto", "")), plain);
    let colored = with("--once --color always", "1");
    for part in ["\u{1b}[38;5;2m97 %", "\u{1b}[38;5;1mlost", "\u{1b}[1m"] {
        assert_contains(&colored, part);
    }
    for (args, no_color, expected) in [
        ("--once", "", true),
        ("--once", "1", false),
        ("--once --color never", "", false),
        ("--once --color always", "1", true),
    ] {
        let mut command = machine.top(args);
        let terminal = Terminal::run(&machine.case, command.env("NO_COLOR", no_color), 50, 120);
        terminal.wait_for(&["7  97 %", "host cpu"]);
        assert_eq!(terminal.is_colored(), expected, "{args} {no_color}");
        assert_eq!(terminal.end().code(), Some(0));
    }
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
    let id = Command::new("id").arg("-un").output().unwrap();
    assert_eq!(known["user"], text(&id.stdout).trim());
    assert_eq!(
        (&hidden["pid"], &hidden["user"]),
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
fn columns_are_csv_with_units_in_the_header() {
    let machine = Machine::new();
    let printed =
        machine.printed("--query index,uuid,name,gpu_util,power_w,temperature_c,last_xid,throttle");
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 11);
    let expected = [
        "index,uuid,name,gpu_util [%],power_w [W],temperature_c [°C],last_xid,throttle",
        "0,GPU-0,\"Fake, 0\",97,250.5,61,,sw_power_cap+hw_slowdown",
        "0,MIG-0,\"Fake, 0 MIG 1g.10gb\",,,,,",
    ];
    assert_eq!(lines[..3], expected);
    let (code, stderr) = machine.case.code_and_stderr("top --query index,power");
    assert_eq!(code, 2);
    assert_contains(
        &stderr,
        "invalid value 'power' for '--query <COLUMN,…>' [possible values: timestamp, boot_id, ",
    );
    assert_contains(&stderr, ", power_w, ");
}

#[test]
fn without_a_gpu_there_are_the_host_and_the_runs() {
    let case = Case::with_logs();
    std::fs::create_dir(case.path("empty")).unwrap();
    for (args, runs) in [
        ("top --events empty", false),
        ("top --once", true),
        ("top --events events.jsonl", true),
    ] {
        let printed = text(&case.run(args).stdout);
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines.last().unwrap().starts_with("host cpu "), "{printed}");
        if !runs {
            assert_eq!(lines.len(), 2);
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
