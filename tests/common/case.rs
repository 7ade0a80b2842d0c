//! A run of `gpu-embed` that tests interrupt.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{all, pack, program, run, shard, test_data};

/// A folder with many small batches, so that a run can be interrupted between any two.
pub(crate) struct Case {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) model: PathBuf,
}

impl Case {
    pub(crate) fn new() -> Self {
        Self::of(3)
    }

    /// Packs so many copies of the test proteins; three take some tenths of a second. A run that is interrupted several times
    /// needs more.
    pub(crate) fn of(copies: usize) -> Self {
        let case = Self {
            folder: tempfile::tempdir().expect("temp folder"),
            model: test_data("model-tiny"),
        };
        let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
        let copies: String = (0..copies)
            .map(|copy| proteins.replace('>', &format!(">{copy}-")))
            .collect();
        case.pack(&copies);
        case
    }

    /// Packs other records.
    pub(crate) fn pack(&self, fasta: &str) {
        self.pack_with(fasta, &[], 256);
    }

    /// Packs other records, or the same records with other options.
    pub(crate) fn pack_with(&self, fasta: &str, options: &[&str], max_batch_tokens: u32) {
        for old in ["shards", "b.arrow"] {
            let old = self.path(old);
            let _ = fs::remove_dir_all(&old).or_else(|_| fs::remove_file(&old));
        }
        fs::write(self.path("in.fasta"), fasta).expect("write");
        let options = [&["--max-residues", "100"], options].concat();
        let shard = shard(&self.path("in.fasta"), &self.path("shards"), &options);
        pack(&shard, &self.path("b.arrow"), max_batch_tokens);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a run that saves every batch at once.
    pub(crate) fn embed(&self, out: &str) -> Command {
        self.embed_saving(out, "10ms")
    }

    pub(crate) fn embed_saving(&self, out: &str, every: &str) -> Command {
        // The tests may run under `nohup`.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP", program("gpu-embed")])
            .arg(self.path("b.arrow"))
            .arg("--out")
            .arg(self.path(out))
            .args(["--device", "cpu", "--progress", "none"])
            .args(["--threads", "1", "--checkpoint-interval", every, "--model"])
            .arg(&self.model);
        command
    }

    /// Returns the output of an uninterrupted run.
    pub(crate) fn undisturbed(&self) -> Vec<u8> {
        run(&mut self.embed("undisturbed.parquet"));
        fs::read(self.path("undisturbed.parquet")).expect("output")
    }

    /// Lists the saved parts of an unfinished run.
    pub(crate) fn parts(&self, out: &str) -> Vec<PathBuf> {
        let folder = self.path(&format!(".{out}.plmkit-run"));
        if !folder.exists() {
            return Vec::new();
        }
        let names = all(&folder).into_iter();
        names
            .filter(|name| name.starts_with("part-"))
            .map(|name| folder.join(name))
            .collect()
    }

    /// Starts a run and waits until it has saved more parts.
    pub(crate) fn underway(&self, out: &str) -> Child {
        self.underway_with(out, &[])
    }

    pub(crate) fn underway_with(&self, out: &str, options: &[&str]) -> Child {
        let before = self.parts(out).len();
        let mut child = self
            .embed(out)
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .expect("spawn");
        let deadline = Instant::now() + Duration::from_mins(2);
        while self.parts(out).len() < before + 3 {
            assert!(Instant::now() < deadline, "the run saves nothing");
            if let Some(status) = child.try_wait().expect("wait") {
                panic!("the run ended before it could be interrupted: {status}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        child
    }

    /// Interrupts a run with a signal and returns its standard error.
    pub(crate) fn interrupt(&self, out: &str, signal: i32) -> String {
        let mut child = self.underway(out);
        let sent = Instant::now();
        send(&child, signal);
        let mut text = String::new();
        let stderr = child.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut text).expect("UTF-8");
        assert_eq!(child.wait().expect("wait").signal(), Some(signal));
        assert!(sent.elapsed() < Duration::from_secs(10));
        text
    }

    pub(crate) fn assert_complete(&self, out: &str, expected: &[u8]) {
        assert!(fs::read(self.path(out)).expect("output") == expected);
        let names = all(self.folder.path());
        let others = ["b.arrow", "in.fasta", "shards", "undisturbed.parquet"];
        let left: Vec<&String> = names
            .iter()
            .filter(|name| !others.contains(&name.as_str()) && *name != out)
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

pub(crate) fn send(child: &Child, signal: i32) {
    let signal = Signal::from_named_raw(signal).expect("a signal");
    kill_process(Pid::from_child(child), signal).expect("kill");
}

/// Kills a run and waits for its end.
pub(crate) fn kill(child: &mut Child) {
    child.kill().expect("kill");
    child.wait().expect("wait");
}

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGQUIT: i32 = 3;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGUSR1: i32 = 10;
pub(crate) const SIGTERM: i32 = 15;
pub(crate) const SIGCONT: i32 = 18;
pub(crate) const SIGSTOP: i32 = 19;

/// Returns `(ordinal, reason)` of every line of a list of rejects.
pub(crate) fn rejects(path: &Path) -> Vec<(u64, String)> {
    let mut reader = csv::Reader::from_path(path).expect("rejects");
    let rows = reader.deserialize::<(u64, String, u64, String, u32)>();
    rows.map(|row| row.expect("row"))
        .map(|(ordinal, _id, _length, reason, _start)| (ordinal, reason))
        .collect()
}

/// Packs proteins in windows, two in a batch: most proteins have windows in several batches.
pub(crate) fn in_windows() -> Case {
    let case = Case::new();
    let fasta = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    let lines = fasta.lines().filter(|line| !line.starts_with('>'));
    let residues: String = lines.collect();
    // Only one window has the pyrrolysine, from residue 720 to 819.
    let long = format!("{}O{}", &residues[..760], &residues[761..1500]);
    let options = ["--long-policy", "window", "--overlap", "20"];
    case.pack_with(
        &format!(">long\n{}\n{fasta}>poisoned\n{long}\n", &residues[..1500]),
        &options,
        256,
    );
    case
}
