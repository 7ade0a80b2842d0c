//! Full disks: a run ends with one line and exit code 74, leaves no half file and nothing temporary, and works once
//! there is room.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{SmallDisk, assert_failed, bin, run};
use crate::inputs::{pack, write_fasta, write_shard};
use crate::tree::{Tree, assert_same, assert_subset, is_saved, tree};

/// What a tmpfs gives and takes at once, in bytes.
const PAGE: usize = 4096;
/// Degrees of fullness at which a writer is tried, at most.
const DEGREES: usize = 40;
/// Takes up the room on a disk.
const BALLAST: &str = "ballast";

/// A program that runs out of room.
struct Writer<'a> {
    name: &'static str,
    /// The command that makes its files in a folder.
    command: &'a dyn Fn(&Path) -> Command,
}

impl Writer<'_> {
    /// What a run makes that nothing hinders.
    fn expected(&self) -> Tree {
        let folder = tempfile::tempdir().expect("temp folder");
        run(&mut (self.command)(folder.path()));
        tree(folder.path())
    }

    /// Runs on a disk that is full at every page of the output, from the first to the last.
    fn on_full_disks(&self) {
        let expected = self.expected();
        let pages: usize = expected
            .values()
            .map(|bytes| bytes.len().div_ceil(PAGE))
            .sum();
        let Some(disk) = SmallDisk::mount((3 * pages + 16) as u32 * 4) else {
            return;
        };
        let mut named = BTreeSet::new();
        let degrees: BTreeSet<usize> = (0..pages)
            .step_by(pages.div_ceil(DEGREES))
            .chain([pages - 1])
            .collect();
        for &free in &degrees {
            let when = format!("{} with {free} of {pages} pages", self.name);
            fill(&disk, free);
            let output = (self.command)(disk.path()).output().expect("run");
            assert_failed(&output, 74, "no space left on device");
            named.extend(self.named(&output, &expected));
            self.recover(disk.path(), &expected, &when);
        }
        let all: BTreeSet<PathBuf> = expected.keys().cloned().collect();
        assert_eq!(named, all, "{}: the files that did not fit", self.name);
        eprintln!(
            "{}: a full disk at {} of {pages} pages, at each of {all:?}",
            self.name,
            degrees.len()
        );
    }

    /// Runs with fsync and rename failing, one call after another, as they do where space runs out late.
    fn with_failing_calls(&self) {
        let expected = self.expected();
        let folder = tempfile::tempdir().expect("temp folder");
        let library = failing_calls(folder.path());
        let out = folder.path().join("out");
        fs::create_dir(&out).expect("folder");
        let mut calls = 0;
        loop {
            let mut command = (self.command)(&out);
            command
                .env("LD_PRELOAD", &library)
                .env("FAIL_AT", (calls + 1).to_string());
            let output = command.output().expect("run");
            if output.status.success() {
                break;
            }
            calls += 1;
            let when = format!("{} with call {calls} failing", self.name);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(74), "{when}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{when}: {stderr}");
            self.recover(&out, &expected, &when);
        }
        // Each file has an fsync, a rename and an fsync of its folder, and so has each part that is saved before.
        assert!(
            calls >= 3 * expected.len(),
            "{}: {calls} calls can fail",
            self.name
        );
        assert_same(&tree(&out), &expected, self.name);
        eprintln!("{}: {calls} failing calls of fsync and rename", self.name);
    }

    /// Runs where no file may be larger than a page.
    fn under_a_file_size_limit(&self) {
        let expected = self.expected();
        let folder = tempfile::tempdir().expect("temp folder");
        let command = (self.command)(folder.path());
        // In units of 512 bytes (POSIX, ulimit).
        let output = Command::new("sh")
            .args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""])
            .arg(command.get_program())
            .args(command.get_args())
            .output()
            .expect("run");
        assert_failed(&output, 74, "file too large");
        self.recover(
            folder.path(),
            &expected,
            &format!("{} under a file-size limit", self.name),
        );
    }

    /// After a failure: nothing but whole files, and a rerun that makes them all. Empties the folder again.
    fn recover(&self, folder: &Path, expected: &Tree, when: &str) {
        let _ = fs::remove_file(folder.join(BALLAST));
        let mut left = tree(folder);
        left.retain(|path, _| !is_saved(path));
        assert_subset(&left, expected, when);
        run(&mut (self.command)(folder));
        assert_same(&tree(folder), expected, &format!("{when}, run again"));
        for entry in fs::read_dir(folder).expect("folder") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                fs::remove_dir_all(path).expect("remove");
            } else {
                fs::remove_file(path).expect("remove");
            }
        }
    }

    /// The output whose path the message begins with.
    fn named(&self, output: &Output, expected: &Tree) -> Option<PathBuf> {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let path = stderr
            .strip_prefix(&format!("{}: ", self.name))?
            .split(": ")
            .next()?;
        expected
            .keys()
            .find(|file| Path::new(path).ends_with(file))
            .cloned()
    }
}

/// Fills `disk` but for `free` pages.
fn fill(disk: &SmallDisk, free: usize) {
    let mut ballast = File::create(disk.path().join(BALLAST)).expect("create");
    let mut size = 0;
    while ballast.write_all(&[0; PAGE]).is_ok() {
        size += PAGE;
    }
    ballast.set_len((size - free * PAGE) as u64).expect("cut");
}

fn failing_calls(folder: &Path) -> PathBuf {
    let library = folder.join("failing_calls.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/failing_calls.c");
    let mut compiler = Command::new("cc");
    run(compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source));
    library
}

#[test]
#[ignore = "minutes: make torture"]
fn fasta_shard() {
    let input = tempfile::tempdir().expect("temp folder");
    let fasta = input.path().join("proteins.fasta");
    write_fasta(&fasta, 1);
    let writer = Writer {
        name: "fasta-shard",
        command: &|folder| {
            let mut command = bin("fasta-shard");
            command.arg(&fasta).arg("--out").arg(folder.join("set"));
            command.args(["--shards", "2", "--long-policy", "reject"]);
            // With more it is a matter of chance which shard asks for the last page.
            command.args(["--threads", "1"]);
            command
        },
    };
    writer.on_full_disks();
    writer.with_failing_calls();
    writer.under_a_file_size_limit();
}

#[test]
#[ignore = "minutes: make torture"]
fn pack_batches() {
    let input = tempfile::tempdir().expect("temp folder");
    let shard = write_shard(input.path(), 1);
    let writer = Writer {
        name: "pack-batches",
        command: &|folder| pack(&shard, folder),
    };
    writer.on_full_disks();
    writer.with_failing_calls();
    writer.under_a_file_size_limit();
}

mod gpu_embed {
    use super::*;
    use crate::inputs::embed;

    fn batches(folder: &Path) -> PathBuf {
        let shard = write_shard(folder, 1);
        run(&mut pack(&shard, folder));
        folder.join("batches.arrow")
    }

    #[test]
    #[ignore = "minutes: make torture"]
    fn embeddings() {
        let input = tempfile::tempdir().expect("temp folder");
        let batches = batches(input.path());
        let writer = Writer {
            name: "gpu-embed",
            command: &|folder| embed(&batches, folder),
        };
        writer.on_full_disks();
        writer.with_failing_calls();
        writer.under_a_file_size_limit();
    }

    /// A log costs no run.
    #[test]
    #[ignore = "minutes: make torture"]
    fn run_events() {
        let folder = tempfile::tempdir().expect("temp folder");
        let batches = batches(folder.path());
        let Some(disk) = SmallDisk::mount(64) else {
            return;
        };
        fill(&disk, 0);
        let events = disk.path().join("events.jsonl");
        let stderr = run(embed(&batches, folder.path()).arg("--events").arg(&events));
        assert!(
            stderr.contains("the run goes on without run events"),
            "{stderr}"
        );
        assert!(folder.path().join("embeddings.parquet").exists());
    }

    #[test]
    #[ignore = "minutes: make torture"]
    fn validate_embeddings() {
        let input = tempfile::tempdir().expect("temp folder");
        let batches = batches(input.path());
        run(&mut embed(&batches, input.path()));
        let embeddings = input.path().join("embeddings.parquet");
        let writer = Writer {
            name: "validate-embeddings",
            command: &|folder| {
                let mut command = bin("validate-embeddings");
                command.arg(&embeddings);
                command.arg("--report").arg(folder.join("report.json"));
                command.arg("--mqc").arg(folder.join("sample_mqc.json"));
                command
            },
        };
        writer.on_full_disks();
        writer.with_failing_calls();
    }
}

#[test]
#[ignore = "minutes: make torture"]
fn monitor_log_report() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/monitor_log");
    let writer = Writer {
        name: "monitor-log",
        command: &|folder| {
            let mut command = bin("monitor-log");
            command.arg("report").arg("--gpu").arg(logs.join("gpu.csv"));
            command.arg("--events").arg(logs.join("events.jsonl"));
            command.arg("--out").arg(folder.join("report.json"));
            command.arg("--mqc").arg(folder.join("sample_mqc.json"));
            command
        },
    };
    writer.on_full_disks();
    writer.with_failing_calls();
    writer.under_a_file_size_limit();
}

/// A record costs no command, and what there was room for can be read.
#[test]
#[ignore = "minutes: make torture"]
fn monitor_log_record() {
    for free in [0, 1] {
        let Some(disk) = SmallDisk::mount(64) else {
            return;
        };
        fill(&disk, free);
        let samples = disk.path().join("samples.csv");
        let mut command = bin("monitor-log");
        command
            .args(["record", "--interval", "10ms", "--out"])
            .arg(&samples);
        let output = command
            .args(["--", "sh", "-c", "sleep 1; exit 3"])
            .output()
            .expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert_eq!(
            stderr.matches("going on without a record").count(),
            1,
            "{stderr}"
        );
        fs::remove_file(disk.path().join(BALLAST)).expect("remove");
        let report = disk.path().join("report.json");
        let mut command = bin("monitor-log");
        run(command
            .arg("report")
            .arg("--gpu")
            .arg(&samples)
            .arg("--out")
            .arg(report));
    }
}
