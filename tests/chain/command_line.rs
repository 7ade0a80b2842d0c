//! The command lines of all programs.

use crate::common;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

const PROGRAMS: [&str; 7] = [
    "plmkit",
    "fasta-shard",
    "pack-batches",
    "gpu-embed",
    "monitor-log",
    "validate-embeddings",
    "query-embeddings",
];

fn run(program: &str, argument: &str) -> Output {
    common::bin(program).arg(argument).output().expect("run")
}

#[test]
fn help_version_man_page_and_completions_need_no_other_argument() {
    for program in PROGRAMS {
        let version = env!("CARGO_PKG_VERSION");
        let bash = format!("-o default {program}\n");
        for (argument, what) in [
            ("--help", format!("Usage: {program}")),
            ("--version", format!("{program} {version}\n")),
            ("--generate=man", format!(".TH {program} 1")),
            ("--generate=complete-bash", bash),
            ("--generate=complete-zsh", format!("#compdef {program}")),
            ("--generate=complete-fish", format!("complete -c {program}")),
        ] {
            let output = run(program, argument);
            assert_eq!(output.status.code(), Some(0), "{program} {argument}");
            assert!(output.stderr.is_empty(), "{program} {argument}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(&what), "{program} {argument}: {text}");
        }
    }
}

#[test]
fn a_message_is_bounded_whatever_it_quotes() {
    let long = "x".repeat(100_000);
    let bounded = |output: &Output, code: i32, end: &str| {
        common::assert_failed(output, code, "… (9");
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(line.contains(" characters left out) …"), "{line}");
        assert!(line.ends_with(end), "{line}");
        assert!(line.len() < 2200, "{} bytes", line.len());
    };
    for program in PROGRAMS {
        let output = run(program, &format!("--log-format={long}"));
        bounded(&output, 2, "; see --help\n");
    }
    let mut shard = common::bin("fasta-shard");
    shard.arg(&long).args(["--shards", "1", "--out", "absent"]);
    bounded(&shard.output().expect("run"), 66, ": file name too long\n");
}

#[test]
fn a_usage_error_is_one_line_and_exit_code_2() {
    for program in PROGRAMS {
        for (arguments, what) in [
            ("--no-such-option", "'--no-such-option'"),
            ("--log-format=xml", "'xml'"),
        ] {
            let output = run(program, arguments);
            assert!(output.stdout.is_empty(), "{program}");
            common::assert_failed(&output, 2, what);
            common::assert_failed(&output, 2, &format!("{program}: "));
        }
    }
    let output = common::bin("gpu-embed").output().expect("run");
    let line = "gpu-embed: the following required arguments were not provided: --model <MODEL>, --out <FILE>, <BATCHES.arrow>...; see --help\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), line);
    let output = run("monitor-log", "reprot");
    let tip = "monitor-log: unrecognized subcommand 'reprot'; tip: ";
    common::assert_failed(&output, 2, tip);
}

#[test]
fn a_usage_error_is_json_if_json_is_requested() {
    for program in PROGRAMS {
        for arguments in [
            ["--log-format", "json", "--no-such-option"].as_slice(),
            &["--no-such-option", "--log-format=json"],
        ] {
            let output = common::bin(program).args(arguments).output().expect("run");
            common::assert_failed(&output, 2, "--no-such-option");
            let line: Value = serde_json::from_slice(&output.stderr).expect("JSON");
            assert_eq!(
                (&line["level"], &line["tool"]),
                (&"error".into(), &program.into())
            );
        }
    }
    // Arguments after -- belong to the command.
    let record = common::command(".".as_ref(), "monitor-log record -- wc --log-format json");
    common::assert_fails(record, 2, "monitor-log: the following required");
}

#[test]
fn what_is_wrong_with_a_number_is_said_in_plain_words() {
    let combine = "query-embeddings combine a --out b --rows-per-file";
    for (line, what) in [
        (format!("{combine} 0"), "expected a number above 0; see"),
        (
            format!("{combine} many"),
            "expected a whole number, in digits only; see",
        ),
        (
            format!("{combine}=-3"),
            "expected a whole number, in digits only; see",
        ),
        (
            format!("{combine} 1{}", "0".repeat(20)),
            "expected a smaller number; see",
        ),
        (
            "fasta-shard a --out b --shards many".to_owned(),
            "expected a whole number, in digits only; see",
        ),
    ] {
        let command = common::command(".".as_ref(), &line);
        common::assert_fails(command, 2, what);
    }
}

#[test]
fn a_dash_is_refused_where_no_stream_is_possible() {
    for line in [
        "fasta-shard a.fasta --shards 1 --out -",
        "pack-batches - --out b.arrow",
        "pack-batches s.parquet --out -",
        "pack-batches s.parquet --out b.arrow --batch-size -",
        "gpu-embed - --model m --out e.parquet",
        "gpu-embed b.arrow --model - --out e.parquet",
        "gpu-embed b.arrow --model m --out -",
        "gpu-embed --probe --model m --out -",
        "gpu-embed b.arrow --model m --out e.parquet --rejects -",
        "gpu-embed b.arrow --model m --out e.parquet --events -",
        "gpu-embed b.arrow --model m --out e.parquet --checkpoint-dir -",
        "validate-embeddings -",
        "validate-embeddings e.parquet --shards -",
        "validate-embeddings e.parquet --shards s.parquet --rejects -",
        "validate-embeddings e.parquet --shards s.parquet --manifest -",
        "validate-embeddings e.parquet --reference -",
        "monitor-log record --out - -- true",
        "monitor-log report --events - --out r.json",
        "monitor-log report --gpu - --out r.json",
        "monitor-log estimate - --model m",
        "monitor-log estimate s --model m --measured -",
        "plmkit a.fasta --out - --model m",
        "monitor-log top --once --events -",
        "monitor-log export --events -",
    ] {
        let folder = tempfile::tempdir().expect("temp folder");
        let command = common::command(folder.path(), line);
        common::assert_fails(command, 2, "invalid value '-' for ");
        assert!(common::all(folder.path()).is_empty(), "{line}");
    }
}

#[test]
fn tables_are_not_written_to_devices_and_reports_are() {
    let folder = tempfile::tempdir().expect("temp folder");
    let command = |line: &str| common::command(folder.path(), line);
    fs::write(folder.path().join("a.fasta"), ">a\nMKV\n").expect("write");
    common::run(&mut command("fasta-shard a.fasta --shards 1 --out s"));
    let events = "{\"type\":\"run\",\"run\":\"a\",\"time\":\"2026-01-01T00:00:00Z\"}\n";
    fs::write(folder.path().join("a.jsonl"), events).expect("write");
    let pack = "pack-batches s/shard-00000.parquet --out";
    for device in ["/dev/null", "/dev/stdout"] {
        // Checked before the model is searched for.
        let embed = format!("gpu-embed b.arrow --model none --out {device}");
        for line in [format!("{pack} {device}"), embed] {
            common::assert_fails(command(&line), 73, "expected a place for a file");
        }
    }
    let folder_as_report = command(&format!("{pack} b.arrow --report s"));
    common::assert_fails(folder_as_report, 73, "s: cannot create: is a directory");
    assert_eq!(common::all(folder.path()), ["a.fasta", "a.jsonl", "s"]);

    for report in ["/dev/null", "/dev/stdout", "-"] {
        for line in [
            format!("{pack} b.arrow --report {report}"),
            format!("monitor-log report --events a.jsonl --out {report}"),
            format!("monitor-log report --events a.jsonl --out r.json --mqc {report}"),
            format!("monitor-log report --events a.jsonl --out /dev/null --html {report}"),
        ] {
            let output = command(&line).output().expect("run");
            assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
            assert_eq!(output.stdout.is_empty(), report == "/dev/null", "{line}");
        }
    }
    let expected = ["a.fasta", "a.jsonl", "b.arrow", "r.json", "s"];
    assert_eq!(common::all(folder.path()), expected);

    // A file that a shell opened for appending keeps its content.
    let log = folder.path().join("log");
    fs::write(&log, "before\n").expect("write");
    let opened = fs::File::options().append(true).open(&log).expect("open");
    let mut report = command("monitor-log report --events a.jsonl --out /dev/stdout");
    assert!(report.stdout(opened).status().expect("run").success());
    let log = fs::read_to_string(log).expect("log");
    let is_appended = log.starts_with("before\n{") && log.ends_with("}\n");
    assert!(is_appended, "{log}");
}

#[test]
fn a_removed_working_folder_is_reported() {
    // The libraries of gpu-embed end it before its first line.
    for (line, code) in [
        ("fasta-shard a.fasta --shards 1 --out s", 66),
        ("fasta-shard /dev/null --shards 1 --out s", 73),
        ("pack-batches s.parquet --out b.arrow", 66),
        ("validate-embeddings e.parquet", 66),
        ("monitor-log report --events a.jsonl --out r.json", 66),
    ] {
        let folder = tempfile::tempdir().expect("temp folder");
        let mut words = line.split(' ');
        let output = Command::new("sh")
            .args(["-c", "rmdir \"$PWD\" && exec \"$0\" \"$@\""])
            .arg(common::program(words.next().expect("a program")))
            .args(words)
            .current_dir(folder.path())
            .output()
            .expect("sh");
        let what = "no such file or directory; the current folder was removed\n";
        common::assert_failed(&output, code, what);
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for program in PROGRAMS {
        let full = fs::File::create("/dev/full").expect("a full device");
        let output = common::bin(program).arg("--help").stdout(full).output();
        let what = "standard output: cannot write: no space left on device";
        common::assert_failed(&output.expect("run"), 74, what);
    }
}

#[test]
fn usage_and_help_describe_a_probe() {
    let help = run("gpu-embed", "--help").stdout;
    let help = String::from_utf8_lossy(&help);
    let usage = "Usage: gpu-embed [OPTIONS] --model <MODEL> --out <FILE.parquet> <BATCHES.arrow>...\n       \
                 gpu-embed [OPTIONS] --model <MODEL> --probe [--out <FILE.json>]\n";
    assert!(help.contains(usage), "{help}");
    // As in lib/engine/src/stitch/blend.rs.
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let weight = "weighted by the number of residues from it to the nearer end of the window, itself included";
    assert!(words.contains(weight), "{help}");
}

#[test]
fn the_man_page_has_the_options_of_the_subcommands_and_refers_to_no_missing_page() {
    let text = run("monitor-log", "--generate=man").stdout;
    let text = String::from_utf8_lossy(&text).replace("\\-", "-");
    let own = run("plmkit", "--generate=man").stdout;
    let own = String::from_utf8_lossy(&own);
    assert!(own.contains("PLMKIT ESTIMATE") && own.contains("PLMKIT FETCH"));
    for part in [
        ".SH \"MONITOR-LOG RECORD\"",
        "--interval",
        "--peak-tflops",
        "--listen",
        "--once",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("(1)"), "{text}");
    assert_eq!(text.matches("--log-format\\fR \\fI").count(), 1, "{text}");
    assert_eq!(text.matches(" .ds Aq ").count(), 2, "{text}");
}

/// The kernel does not let a signal end the first process of a container.
#[test]
fn the_first_process_of_a_container_ends_with_the_code_of_the_signal() {
    let Some(mut first_process) = common::first_process() else {
        return;
    };
    let folder = tempfile::tempdir().expect("temp folder");
    let mut child = first_process
        .arg(common::bin("fasta-shard").get_program())
        .args(["-", "--max-shard-tokens", "1000000", "--out"])
        .arg(folder.path().join("shards"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("unshare");
    let mut input = child.stdin.take().expect("a pipe");
    let mut number = 0;
    let mut write_some = || {
        let ids = number..number + 1000;
        number = ids.end;
        let records: Vec<String> = ids.map(|id| format!(">{id}\nMKV\n")).collect();
        input.write_all(records.concat().as_bytes())
    };
    write_some().expect("a reader");
    // The program handles signals before it reads.
    sleep(Duration::from_millis(500));
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let first = fs::read_to_string(children).expect("children");
    let sent = Command::new("kill").args(["-TERM", first.trim()]).status();
    assert!(sent.expect("kill").success());
    // The program polls for a stop between records.
    for _ in 0..5000 {
        if write_some().is_err() {
            break;
        }
    }
    drop(input);
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(143), "{status:?}");
}
