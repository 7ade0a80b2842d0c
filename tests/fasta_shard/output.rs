//! Outputs that cannot be written, and runs that are stopped.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::case::{Case, proteins};
use crate::common::{SmallDisk, all, assert_fails, run};

#[test]
fn folders_that_cannot_be_created() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n");
    case.write("out", "a file");
    let command = |out: &str| case.command_to(out, "a.fasta --shards 1");
    let message = "out: cannot create: not a directory";
    assert_fails(command("out"), 73, message);
    for folder in ["out/below", "/proc/below/it"] {
        let message = format!("{folder}: cannot create: ");
        assert_fails(command(folder), 73, &message);
    }
    assert_eq!(fs::read_to_string(case.out()).expect("read"), "a file");
    case.write("a.fasta", ">a\nM1\n");
    assert_fails(command("new/and/deep"), 65, "record 1 'a'");
    assert!(!case.path("new").exists(), "created folders are removed");
}

#[test]
fn names_with_line_ends_are_shown_on_one_line() {
    let case = Case::new();
    case.write("none\nat.fasta", "");
    case.write("a.fasta", ">a\nMK\n");
    for (lines, start) in [
        (2, "warning: none\\nat.fasta: no records\n"),
        (1, "o\\nut: already complete"),
    ] {
        let mut command = case.command_to("o\nut", "none\nat.fasta a.fasta --shards 1");
        let stderr = run(&mut command);
        assert!(
            stderr.starts_with(&format!("fasta-shard: {start}")),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), lines, "{stderr}");
    }
}

#[test]
fn full_disks_and_limits_on_files() {
    let case = Case::new();
    case.write("a.fasta", proteins(1500, 9));
    if let Some(disk) = SmallDisk::mount(128) {
        let out = disk.path().join("out");
        let command = case.command_to(out.to_str().expect("UTF-8"), "a.fasta --shards 2");
        assert_fails(command, 74, "no space left on device");
        assert!(all(disk.path()).is_empty(), "files are left behind");
    }
    let limited = case.limited("-f 8", "a.fasta --shards 2");
    case.leaves_nothing(limited, 74, "file too large");
    // More shards than files may be open.
    let manifest = |files: &str| {
        run(&mut case.limited(files, "a.fasta --shards 400 --force"));
        fs::read(case.out().join("manifest.json")).expect("manifest.json")
    };
    assert_eq!(manifest("-n 32"), manifest("-n 1024"));
}

#[test]
fn an_input_is_not_overwritten() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n");
    case.succeeds("a.fasta --shards 1");
    fs::hard_link(case.out().join("rejects.csv"), case.path("link.fasta")).expect("link");
    for input in ["out/shard-00000.parquet", "out/manifest.json", "link.fasta"] {
        let before = case.files();
        let message = "expected an input that is no file of the set of shards";
        case.fails(&format!("{input} --shards 1 --force"), 2, message);
        assert_eq!(case.files(), before);
    }
    let mut lines = Vec::new();
    for name in [
        ".shard-00000.parquet.plmkit-tmp",
        ".rejects.csv.plmkit-tmp-7-0",
        ".plmkit-lock",
    ] {
        case.write(&format!("out/{name}"), ">a\nMK\n");
        lines.push(format!("out/{name} --shards 1 --force"));
    }
    let before = case.files();
    for line in lines {
        case.fails(
            &line,
            2,
            "has the name of an unfinished file, which --out removes",
        );
        assert_eq!(case.files(), before);
    }
}

fn send(signal: &str, run: &Child) {
    let pid = run.id().to_string();
    let status = Command::new("kill").args([signal, &pid]).status();
    assert!(status.expect("kill").success());
}

/// Stops a run that waits for its input with `signal`, once it has opened four shards, `rejects.csv` and the lock.
fn stop(case: &Case, mut run: Child, signal: &str, expected: i32) {
    let start = Instant::now();
    let patience = Duration::from_secs(20);
    // Handlers are installed before any file is created. The input is opened after the shards.
    while fs::read_dir(case.out()).map_or(0, Iterator::count) < 6 {
        assert!(start.elapsed() < patience, "it opens its outputs");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(100));
    send(signal, &run);
    let status = loop {
        if let Some(status) = run.try_wait().expect("wait") {
            break status;
        }
        if start.elapsed() > patience {
            run.kill().expect("kill");
        }
        sleep(Duration::from_millis(10));
    };
    assert_eq!(status.signal(), Some(expected));
    assert!(!case.out().exists(), "files are left behind");
}

#[test]
fn a_signal_ends_a_run_that_waits_for_its_input() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let case = Case::new();
        let mut command = case.command("- --shards 4");
        let mut run = command.stdin(Stdio::piped()).spawn().expect("start");
        let mut stdin = run.stdin.take().expect("a pipe");
        let written = stdin.write_all(proteins(100, 10).as_bytes());
        written.expect("write");
        stop(&case, run, signal, number);
    }
}

#[test]
fn a_signal_ends_a_run_that_waits_for_a_writer() {
    let case = Case::new();
    let created = Command::new("mkfifo").arg(case.path("a.fasta")).status();
    assert!(created.expect("mkfifo").success());
    let run = case.command("a.fasta --shards 4").spawn().expect("start");
    stop(&case, run, "-TERM", 15);
}

#[test]
fn a_socket_is_no_input() {
    let case = Case::new();
    let _socket = UnixListener::bind(case.path("a.sock")).expect("bind");
    let message = "a.sock: cannot open: no such device or address";
    case.leaves_nothing(case.command("a.sock --shards 1"), 66, message);
}

#[test]
fn a_killed_run_leaves_no_set_and_the_next_run_completes_it() {
    let case = Case::new();
    let text = proteins(3000, 11);
    case.write("a.fasta", &text);
    let undisturbed = Case::new();
    undisturbed.write("a.fasta", &text);
    undisturbed.succeeds("a.fasta --shards 4");
    for pause in [5, 10, 20, 40] {
        let mut command = case.command("a.fasta --shards 4 --quiet");
        let mut run = command.spawn().expect("start");
        sleep(Duration::from_millis(pause));
        run.kill().expect("kill");
        run.wait().expect("wait");
    }
    case.succeeds("a.fasta --shards 4");
    assert!(case.files() == undisturbed.files(), "the same files");
}
