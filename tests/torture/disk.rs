//! Full disks: a run ends with one line and exit code 74, leaves no partial or temporary file, and succeeds once there is room.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{SmallDisk, assert_failed, command, compile_driver, failing_calls, run, tree};
use crate::inputs::{EMBED, Inputs, Trial};
use crate::tree::{assert_same, assert_subset, is_saved};

/// The allocation unit of a tmpfs, in bytes.
const PAGE: usize = 4096;
/// The most degrees of fullness that are tried.
const DEGREES: usize = 40;
/// A file that fills the disk.
const BALLAST: &str = "ballast";

impl Trial {
    fn run_all(&self) {
        self.on_full_disks();
        self.with_failing_calls();
        self.under_a_file_size_limit();
    }

    fn command(&self, folder: &Path) -> Command {
        self.inputs.command_to(folder, &self.line)
    }

    /// Returns the name of the program.
    fn name(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// Runs on disks with room for fewer pages than the outputs need: from none to all but one.
    fn on_full_disks(&self) {
        let sizes = self.expected.values().map(Vec::len);
        let pages: usize = sizes.map(|bytes| bytes.div_ceil(PAGE)).sum();
        // The owner in the lock file of a set takes a page, too.
        let pages = pages + usize::from(self.name() == "fasta-shard");
        let Some(disk) = SmallDisk::mount((3 * pages + 16) as u32 * 4) else {
            return;
        };
        let mut named = BTreeSet::new();
        let degrees: BTreeSet<usize> = (0..pages)
            .step_by(pages.div_ceil(DEGREES))
            .chain([pages - 1])
            .collect();
        for &free in &degrees {
            let when = format!("{} with {free} of {pages} pages", self.name());
            fill(&disk, free);
            let output = self.command(disk.path()).output().expect("run");
            assert_failed(&output, 74, "no space left on device");
            named.extend(self.named(&output));
            self.recover(disk.path(), &when);
        }
        let (name, degrees) = (self.name(), degrees.len());
        let all: BTreeSet<PathBuf> = self.expected.keys().cloned().collect();
        assert_eq!(named, all, "{name}: the files that did not fit");
        eprintln!("{name}: a full disk at {degrees} of {pages} pages, at each of {all:?}");
    }

    /// Runs with one failing call of fsync or rename after another, as if space ran out late.
    fn with_failing_calls(&self) {
        let folder = tempfile::tempdir().expect("temp folder");
        let library = failing_calls(folder.path());
        let out = folder.path().join("out");
        fs::create_dir(&out).expect("folder");
        let mut calls = 0;
        loop {
            let mut command = self.command(&out);
            let command = command.env("LD_PRELOAD", &library);
            let output = command.env("FAIL_AT", (calls + 1).to_string()).output();
            let output = output.expect("run");
            if output.status.success() {
                break;
            }
            calls += 1;
            assert_failed(&output, 74, "");
            let when = format!("{} with call {calls} failing", self.name());
            self.recover(&out, &when);
        }
        // Each file and each saved part has an fsync, a rename and an fsync of its folder.
        let name = self.name();
        assert!(
            calls >= 3 * self.expected.len(),
            "{name}: {calls} calls can fail"
        );
        assert_same(&tree(&out), &self.expected, name);
        eprintln!("{name}: {calls} failing calls of fsync and rename");
    }

    /// Runs with a limit of one page on file sizes.
    fn under_a_file_size_limit(&self) {
        let folder = tempfile::tempdir().expect("temp folder");
        let command = self.command(folder.path());
        // In units of 512 bytes (POSIX, ulimit).
        let output = Command::new("sh")
            .args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(self.inputs.path(""))
            .output()
            .expect("run");
        assert_failed(&output, 74, "file too large");
        let when = format!("{} under a file-size limit", self.name());
        self.recover(folder.path(), &when);
    }

    /// Expects only complete files after a failure, and that a rerun makes all of them. Empties the folder.
    fn recover(&self, folder: &Path, when: &str) {
        let _ = fs::remove_file(folder.join(BALLAST));
        let mut left = tree(folder);
        left.retain(|path, _| !is_saved(path));
        assert_subset(&left, &self.expected, when);
        run(&mut self.command(folder));
        let again = format!("{when}, run again");
        assert_same(&tree(folder), &self.expected, &again);
        for entry in fs::read_dir(folder).expect("folder") {
            let path = entry.expect("entry").path();
            let removed = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            removed.expect("remove");
        }
    }

    /// Returns the output at the start of the message.
    fn named(&self, output: &Output) -> Option<PathBuf> {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let message = stderr.strip_prefix(self.name())?.strip_prefix(": ")?;
        let path = Path::new(message.split(": ").next()?);
        let mut files = self.expected.keys();
        files.find(|file| path.ends_with(file)).cloned()
    }
}

/// Fills a disk, except for `free` pages.
fn fill(disk: &SmallDisk, free: usize) {
    let mut ballast = File::create(disk.path().join(BALLAST)).expect("create");
    let mut size = 0;
    while ballast.write_all(&[0; PAGE]).is_ok() {
        size += PAGE;
    }
    ballast.set_len((size - free * PAGE) as u64).expect("cut");
}

#[test]
#[ignore = "minutes: make torture"]
fn fasta_shard() {
    // With one thread, the same shard always needs the last page.
    let options = "--shards 2 --long-policy reject --threads 1";
    let line = format!("fasta-shard proteins.fasta --out OUT/set {options}");
    Trial::new(Inputs::new(1), &line).run_all();
}

#[test]
#[ignore = "minutes: make torture"]
fn pack_batches() {
    let line =
        "pack-batches set/shard-00000.parquet --out OUT/batches.arrow --report OUT/pack.json";
    Trial::new(Inputs::with_shard(1, 64), line).run_all();
}

#[test]
#[ignore = "minutes: make torture"]
fn gpu_embed() {
    let line = format!("gpu-embed batches.arrow --out OUT/embeddings.parquet {EMBED}");
    Trial::new(Inputs::with_batches(1, 64, 16384), &line).run_all();
}

/// A log that cannot be written does not stop the run.
#[test]
#[ignore = "minutes: make torture"]
fn run_events() {
    let inputs = Inputs::with_batches(1, 64, 16384);
    let Some(disk) = SmallDisk::mount(64) else {
        return;
    };
    fill(&disk, 0);
    let line = format!("gpu-embed batches.arrow --out e.parquet --events OUT/e.jsonl {EMBED}");
    let stderr = run(&mut inputs.command_to(disk.path(), &line));
    let message = "the run goes on without run events";
    assert!(stderr.contains(message), "{stderr}");
    assert!(inputs.path("e.parquet").exists());
}

#[test]
#[ignore = "minutes: make torture"]
fn validate_embeddings() {
    let inputs = Inputs::with_batches(1, 64, 16384);
    inputs.run(&format!("gpu-embed batches.arrow --out e.parquet {EMBED}"));
    let reports = "--report OUT/report.json --mqc OUT/sample_mqc.json";
    let writer = Trial::new(inputs, &format!("validate-embeddings e.parquet {reports}"));
    writer.on_full_disks();
    writer.with_failing_calls();
}

#[test]
#[ignore = "minutes: make torture"]
fn combine() {
    let line = "query-embeddings combine sample --out OUT/all --rows-per-file 40";
    let trial = Trial::new(Inputs::with_dataset(1), line);
    trial.with_failing_calls();
    trial.under_a_file_size_limit();
}

#[test]
#[ignore = "minutes: make torture"]
fn matrix() {
    let line = "query-embeddings combine sample --format npy --force --out OUT/vectors.npy";
    Trial::new(Inputs::with_dataset(1), line).run_all();
}

#[test]
#[ignore = "minutes: make torture"]
fn monitor_log_report() {
    let inputs = Inputs::new(1);
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/monitor_log");
    for log in ["gpu.csv", "events.jsonl"] {
        fs::copy(logs.join(log), inputs.path(log)).expect("copy");
    }
    let reports = "--out OUT/report.json --mqc OUT/sample_mqc.json";
    let line = format!("monitor-log report --gpu gpu.csv --events events.jsonl {reports}");
    Trial::new(inputs, &line).run_all();
}

/// A record that cannot be written does not stop the command, and its first part is readable.
#[test]
#[ignore = "minutes: make torture"]
fn monitor_log_record() {
    let drivers = tempfile::tempdir().expect("temp folder");
    let driver = drivers.path().join("libnvidia-ml.so.1");
    compile_driver(&driver, &[]);
    for free in [0, 1] {
        let Some(disk) = SmallDisk::mount(64) else {
            return;
        };
        fill(&disk, free);
        let line = "monitor-log record --interval 10ms --out samples.csv --nvml";
        let mut record = command(disk.path(), line);
        record
            .arg(&driver)
            .args(["--", "sh", "-c", "sleep 1; exit 3"]);
        let output = record.output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        // It is tried again, which is told once, and how much was lost at the end.
        for warning in ["trying again with each sample", "rows were lost"] {
            assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
        }
        fs::remove_file(disk.path().join(BALLAST)).expect("remove");
        let report = "monitor-log report --gpu samples.csv --out report.json";
        run(&mut command(disk.path(), report));
    }
}
