//! A working folder, and checks of runs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use plmkit_contract::Manifest;
use plmkit_store::read_shard;
use tempfile::TempDir;

use crate::common::{self, Tree, assert_failed, assert_fails, run, tree};

/// A temporary folder with inputs. The output folder `out` does not exist yet.
pub(crate) struct Case(TempDir);

/// A row of a shard, without the description and the digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) ordinal: u64,
    pub(crate) start: u32,
    pub(crate) id: String,
    pub(crate) sequence: String,
    pub(crate) length: u32,
    pub(crate) truncated: bool,
}

impl Case {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("temp folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.path("out")
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("write an input");
    }

    /// `fasta-shard ARGS --out out`, run in the folder.
    pub(crate) fn command(&self, args: &str) -> Command {
        self.command_to("out", args)
    }

    /// `fasta-shard ARGS --out OUT`, run in the folder.
    pub(crate) fn command_to(&self, out: &str, args: &str) -> Command {
        let mut command = common::command(self.0.path(), &format!("fasta-shard {args}"));
        command.args(["--out", out]);
        command
    }

    /// The command of [`command`](Self::command), run by `sh` after `ulimit LIMIT`.
    pub(crate) fn limited(&self, limit: &str, args: &str) -> Command {
        let command = self.command(args);
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]);
        limited.arg(command.get_program()).args(command.get_args());
        limited.current_dir(self.0.path());
        limited
    }

    /// Runs to success and returns the manifest.
    pub(crate) fn succeeds(&self, args: &str) -> Manifest {
        run(&mut self.command(args));
        self.manifest()
    }

    /// Expects exit code `code`, one line on standard error that contains `message`, and no new file.
    pub(crate) fn fails(&self, args: &str, code: i32, message: &str) {
        let names = || -> Vec<PathBuf> {
            let out = self.out().exists().then(|| "out".into());
            tree(self.0.path()).into_keys().chain(out).collect()
        };
        let before = names();
        let output = self.command(args).output().expect("run");
        assert_failed(&output, code, message);
        assert_failed(&output, code, "fasta-shard: ");
        assert_eq!(names(), before, "{args}: files are left behind");
    }

    /// Runs to success and expects `message` on standard error.
    pub(crate) fn says(&self, args: &str, message: &str) {
        let stderr = run(&mut self.command(args));
        assert!(stderr.contains(message), "{stderr}");
    }

    /// Expects that one shard of these inputs [fails](Self::fails).
    pub(crate) fn refuses(&self, inputs: &str, code: i32, message: &str) {
        self.fails(&format!("{inputs} --shards 1"), code, message);
    }

    /// Expects that the run fails and leaves no output folder.
    pub(crate) fn leaves_nothing(&self, command: Command, code: i32, message: &str) {
        assert_fails(command, code, message);
        assert!(!self.out().exists(), "files are left behind");
    }

    pub(crate) fn manifest(&self) -> Manifest {
        let json = fs::read(self.out().join("manifest.json")).expect("manifest.json");
        serde_json::from_slice(&json).expect("a manifest")
    }

    pub(crate) fn rejects(&self) -> String {
        fs::read_to_string(self.out().join("rejects.csv")).expect("rejects.csv")
    }

    /// All rows of all shards, in the order of the input.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let shards = self.manifest().shards.into_iter();
        let mut rows: Vec<Row> = shards
            .flat_map(|shard| rows(&self.out().join(shard.file)))
            .collect();
        rows.sort();
        rows
    }

    /// The ids of all rows, in the order of the input.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.rows().into_iter().map(|row| row.id).collect()
    }

    /// All files in the output folder.
    pub(crate) fn files(&self) -> Tree {
        tree(&self.out())
    }
}

/// Runs a command with `input` on standard input.
pub(crate) fn fed(mut command: Command, input: impl Into<Vec<u8>>) -> Output {
    let streams = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = streams.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.into();
    thread::scope(|scope| {
        // A program that refuses its input does not read all of it.
        scope.spawn(move || stdin.write_all(&input));
        child.wait_with_output().expect("run")
    })
}

/// Expects success without data on standard output; returns standard error.
pub(crate) fn done(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(output.stdout, b"");
    stderr
}

pub(crate) fn rows(shard: &Path) -> Vec<Row> {
    let shard = read_shard(shard).expect("a shard");
    let rows = shard.rows();
    rows.iter()
        .map(|row| Row {
            ordinal: row.key.ordinal,
            start: row.key.start,
            id: row.key.id.to_owned(),
            sequence: row.sequence.to_owned(),
            length: row.key.length,
            truncated: row.key.truncated,
        })
        .collect()
}

/// Makes `count` proteins of 1 to 1,500 residues, which depend only on `seed`.
pub(crate) fn proteins(count: usize, seed: u64) -> String {
    let mut state = seed;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut fasta = String::new();
    for i in 0..count {
        fasta.extend([">P", &seed.to_string(), "_", &i.to_string(), " a protein\n"]);
        for position in 0..=next(1500) {
            if position > 0 && position % 60 == 0 {
                fasta.push('\n');
            }
            fasta.push(char::from(b"ACDEFGHIKLMNPQRSTVWYX"[next(21) as usize]));
        }
        fasta.push('\n');
    }
    fasta
}
