//! What every program says of itself.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

const PROGRAMS: [&str; 5] = [
    "fasta-shard",
    "pack-batches",
    "gpu-embed",
    "monitor-log",
    "validate-embeddings",
];

fn run(program: &str, argument: &str) -> Output {
    common::bin(program).arg(argument).output().expect("run")
}

#[test]
fn help_version_man_page_and_completions_need_no_other_argument() {
    for program in PROGRAMS {
        let version = env!("CARGO_PKG_VERSION");
        for (argument, what) in [
            ("--help", format!("Usage: {program}")),
            ("--version", format!("{program} {version}\n")),
            ("--generate=man", format!(".TH {program} 1")),
            (
                "--generate=complete-bash",
                format!("-o default {program}\n"),
            ),
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
fn usage_and_help_say_what_a_probe_needs() {
    let help = run("gpu-embed", "--help").stdout;
    let help = String::from_utf8_lossy(&help);
    let usage = "Usage: gpu-embed [OPTIONS] --model <MODEL> --out <FILE.parquet> <BATCHES.arrow>...\n       \
                 gpu-embed [OPTIONS] --model <MODEL> --probe [--out <FILE.json>]\n";
    assert!(help.contains(usage), "{help}");
    // What blends windows is in lib/engine/src/stitch/blend.rs.
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let weight = "weighted by the number of residues from it to the nearer end of the window, itself included";
    assert!(words.contains(weight), "{help}");
}

#[test]
fn the_man_page_has_the_options_of_the_subcommands_and_refers_to_no_page_that_is_not_there() {
    let text = run("monitor-log", "--generate=man").stdout;
    let text = String::from_utf8_lossy(&text).replace("\\-", "-");
    for part in [
        ".SH \"MONITOR-LOG RECORD\"",
        "--memory-warning",
        "--peak-tflops",
        "--textfile",
        "--once",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("(1)"), "{text}");
    assert_eq!(text.matches("--log-format\\fR \\fI").count(), 1, "{text}");
    assert_eq!(text.matches(" .ds Aq ").count(), 2, "{text}");
}

/// The kernel lets no signal end the first process of a container.
#[test]
fn as_the_first_process_of_a_container_a_stopped_program_ends_with_the_code_of_the_signal() {
    let Some(mut first_process) = common::first_process() else {
        return;
    };
    let folder = tempfile::tempdir().expect("temp folder");
    let mut child = first_process
        .arg(common::bin("fasta-shard").get_program())
        .args(["-", "--max-shard-tokens", "1000000", "--out-dir"])
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
    // It handles signals before it reads.
    sleep(Duration::from_millis(500));
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let first = fs::read_to_string(children).expect("children");
    let sent = Command::new("kill").args(["-TERM", first.trim()]).status();
    assert!(sent.expect("kill").success());
    // A stop is looked for from record to record.
    for _ in 0..5000 {
        if write_some().is_err() {
            break;
        }
    }
    drop(input);
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(143), "{status:?}");
}
