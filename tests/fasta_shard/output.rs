//! Outputs that cannot be written, and runs that are stopped.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::case::{Case, done, program, proteins, refused, stderr};

#[test]
fn folders_that_cannot_be_made() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n");
    case.write("out", "a file");
    case.fails(
        "a.fasta --shards 1",
        73,
        "out: cannot create: not a directory",
    );
    for folder in ["out/below", "/proc/below/it"] {
        let output = Command::new(program())
            .current_dir(case.path(""))
            .args(["a.fasta", "--shards", "1", "--out", folder])
            .output()
            .expect("run");
        refused(&output, 73, &format!("{folder}: cannot create: "));
    }
    assert_eq!(fs::read_to_string(case.out()).expect("read"), "a file");
}

#[test]
fn folders_that_were_made_are_removed_again() {
    let case = Case::new();
    case.write("a.fasta", ">a\nM1\n");
    let output = Command::new(program())
        .current_dir(case.path(""))
        .args(["a.fasta", "--shards", "1", "--out", "new/and/deep"])
        .output()
        .expect("run");
    refused(&output, 65, "record 1 'a'");
    assert!(!case.path("new").exists());
}

#[test]
fn names_of_several_lines_are_said_on_one() {
    let case = Case::new();
    case.write("none\nat all.fasta", "");
    case.write("a.fasta", ">a\nMK\n");
    let said = || {
        let mut command = Command::new(program());
        command.current_dir(case.path(""));
        command.args(["none\nat all.fasta", "a.fasta", "--shards", "1"]);
        let output = command.args(["--out", "o\nut"]).output().expect("run");
        done(&output);
        stderr(&output)
    };
    let made = said();
    let warning = "fasta-shard: warning: none\\nat all.fasta: no records\n";
    assert!(made.starts_with(warning), "{made}");
    assert_eq!(made.lines().count(), 2, "{made}");
    let again = said();
    assert!(again.starts_with("fasta-shard: o\\nut: already complete"));
    assert_eq!(again.lines().count(), 1, "{again}");
}

#[test]
fn a_full_disk() {
    let case = Case::new();
    case.write("a.fasta", proteins(1500, 9));
    let disk = case.path("disk");
    fs::create_dir(&disk).expect("folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"])
        .arg(&disk)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED a_full_disk: a small file system can be mounted by root only");
        return;
    }
    let output = Command::new(program())
        .current_dir(case.path(""))
        .args(["a.fasta", "--shards", "2", "--out", "disk/out"])
        .output();
    let left = fs::read_dir(&disk).map(Iterator::count);
    let unmounted = Command::new("umount").arg(&disk).status().expect("umount");
    assert!(unmounted.success());
    refused(&output.expect("run"), 74, "no space left on device");
    assert_eq!(
        left.expect("the mounted folder"),
        0,
        "nothing is left behind"
    );
}

#[test]
fn a_limit_on_file_sizes() {
    let case = Case::new();
    case.write("a.fasta", proteins(100, 9));
    let output = Command::new("sh")
        .current_dir(case.path(""))
        .args(["-c", "ulimit -f 8; exec \"$0\" \"$@\"", program()])
        .args(["a.fasta", "--shards", "2", "--out", "out"])
        .output();
    refused(&output.expect("run"), 74, "file too large");
    assert!(!case.out().exists(), "nothing is left behind");
}

#[test]
fn more_shards_than_files_may_be_open() {
    let case = Case::new();
    case.write("a.fasta", proteins(1000, 9));
    let made = |out: &str, files: &str| {
        let output = Command::new("sh")
            .current_dir(case.path(""))
            .args(["-c", "ulimit -n $1; shift; exec \"$@\"", "sh", files])
            .args([program(), "a.fasta", "--shards", "400", "--out", out])
            .output();
        done(&output.expect("run"));
        fs::read(case.path(out).join("manifest.json")).expect("manifest.json")
    };
    assert_eq!(made("few", "32"), made("many", "1024"));
}

#[test]
fn an_input_is_not_overwritten() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n");
    case.succeeds("a.fasta --shards 1");
    fs::hard_link(case.out().join("rejects.csv"), case.path("link.fasta")).expect("link");
    for input in ["out/shard-00000.parquet", "out/manifest.json", "link.fasta"] {
        let before = case.files();
        let output = case.command(&format!("{input} --shards 1 --force"));
        let message = "expected an input that is no file of the set of shards";
        refused(&{ output }.output().expect("run"), 2, message);
        assert_eq!(case.files(), before);
    }
}

fn send(signal: &str, run: &Child) {
    let pid = run.id().to_string();
    let status = Command::new("kill").args([signal, &pid]).status();
    assert!(status.expect("kill").success());
}

/// Starts a run that waits for more of its standard input, stops it with `signal` and says how it ended.
fn stopped_by(signal: &str) -> Option<i32> {
    let case = Case::new();
    let mut run = Command::new(program())
        .current_dir(case.path(""))
        .args(["-", "--shards", "4", "--out", "out"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    let mut stdin = run.stdin.take().expect("a pipe");
    stdin
        .write_all(proteins(100, 10).as_bytes())
        .expect("write");
    let start = Instant::now();
    while fs::read_dir(case.out()).map_or(0, Iterator::count) < 5 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it opens four shards and rejects.csv"
        );
        sleep(Duration::from_millis(10));
    }
    send(signal, &run);
    let status = run.wait().expect("wait");
    drop(stdin);
    assert!(!case.out().exists(), "nothing is left behind");
    status.signal()
}

#[test]
fn a_signal_ends_a_run_that_waits_and_nothing_is_left() {
    assert_eq!(stopped_by("-INT"), Some(2));
    assert_eq!(stopped_by("-TERM"), Some(15));
}

#[test]
fn a_signal_ends_a_run_that_waits_for_a_writer() {
    let case = Case::new();
    let fifo = case.path("a.fasta");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    let mut run = Command::new(program())
        .current_dir(case.path(""))
        .args(["a.fasta", "--shards", "4", "--out", "out"])
        .spawn()
        .expect("start");
    let start = Instant::now();
    let patience = Duration::from_secs(20);
    // Handlers are installed before anything is made. What is opened after the shards is the input.
    while fs::read_dir(case.out()).map_or(0, Iterator::count) < 6 {
        assert!(start.elapsed() < patience, "it opens its outputs");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(100));
    send("-TERM", &run);
    let status = loop {
        if let Some(status) = run.try_wait().expect("wait") {
            break status;
        }
        if start.elapsed() > patience {
            run.kill().expect("kill");
        }
        sleep(Duration::from_millis(10));
    };
    assert_eq!(status.signal(), Some(15));
    assert!(!case.out().exists(), "nothing is left behind");
}

#[test]
fn what_is_no_stream_is_no_input() {
    let case = Case::new();
    let _socket = UnixListener::bind(case.path("a.sock")).expect("bind");
    let output = case.command("a.sock --shards 1").output().expect("run");
    refused(
        &output,
        66,
        "a.sock: cannot open: no such device or address",
    );
    assert!(!case.out().exists(), "nothing is left behind");
}

#[test]
fn a_killed_run_leaves_no_set_and_the_next_one_is_whole() {
    let case = Case::new();
    let text = proteins(3000, 11);
    case.write("a.fasta", &text);
    let undisturbed = Case::new();
    undisturbed.write("a.fasta", &text);
    undisturbed.succeeds("a.fasta --shards 4");
    for pause in [5, 10, 20, 40] {
        let mut run = Command::new(program())
            .current_dir(case.path(""))
            .args(["a.fasta", "--shards", "4", "--out", "out", "--quiet"])
            .spawn()
            .expect("start");
        sleep(Duration::from_millis(pause));
        run.kill().expect("kill");
        run.wait().expect("wait");
    }
    done(&case.command("a.fasta --shards 4").output().expect("run"));
    let contents = |case: &Case| -> Vec<Vec<u8>> {
        case.files().into_iter().map(|(_, bytes)| bytes).collect()
    };
    assert!(
        contents(&case) == contents(&undisturbed),
        "the same files, and no temporary one"
    );
}
