//! Two runs on one output where locks do not exclude: one of them completes it, and the other one says so and ends. If one run
//! takes the output over while the other one is inside a call of rename, both may end, and leave nothing.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{failing_calls, tree};
use crate::inputs::{EMBED, Inputs, Trial};

/// The locks of a file system for the one run and the other, as `failing_calls.c` names them.
const LOCKS: [[&str; 2]; 3] = [["blind", "blind"], ["1", "2"], ["none", "none"]];

/// A run with the stand-ins, which stops itself at a call.
struct Paused(Child);

impl Paused {
    fn start(mut command: Command, library: &Path, locks: &str, at: usize) -> Self {
        let command = command.env("LD_PRELOAD", library).env("LOCKS", locks);
        let command = command.env("PAUSE_AT", at.to_string());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("spawn"))
    }

    /// Waits until it has stopped itself; returns false if it has ended.
    fn is_paused(&self) -> bool {
        let stat = format!("/proc/{}/stat", self.0.id());
        loop {
            let stat = fs::read_to_string(&stat).expect("stat");
            let (_name, rest) = stat.rsplit_once(") ").expect("a name");
            match &rest[..1] {
                "T" => return true,
                "Z" => return false,
                _ => sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Lets it go on to its end.
    fn end(self) -> Output {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args(["-CONT", &pid]).status();
        status.expect("kill");
        self.0.wait_with_output().expect("wait")
    }
}

impl Trial {
    /// Runs the command a second time at each call of fsync or rename of the first run, which then goes on. The second run stops
    /// itself, too, at one of its calls until the first one has ended.
    fn with_two_runs(&self) {
        let folder = tempfile::tempdir().expect("temp folder");
        let library = failing_calls(folder.path());
        let (mut pairs, mut busy, mut both, mut wrong) = (0, 0, 0, Vec::new());
        for locks in LOCKS {
            for second_at in [0, 1, 4] {
                for at in 1.. {
                    let out = tempfile::tempdir().expect("temp folder");
                    let start = |locks, at| {
                        let command = self.inputs.command_to(out.path(), &self.line);
                        Paused::start(command, &library, locks, at)
                    };
                    let first = start(locks[0], at);
                    if !first.is_paused() {
                        first.end();
                        break;
                    }
                    let second = start(locks[1], second_at);
                    second.is_paused();
                    let outputs = [first.end(), second.end()];
                    let ended = outputs.map(|output| {
                        let said = String::from_utf8(output.stderr).expect("UTF-8");
                        (output.status.code(), said)
                    });
                    let refused = ended.iter().filter(|(code, _)| *code == Some(75));
                    let done = ended.iter().filter(|(code, _)| *code == Some(0));
                    let (refused, done) = (refused.count(), done.count());
                    busy += refused;
                    pairs += 1;
                    both += usize::from(done == 0);
                    let left = tree(out.path());
                    let is_right = if done == 0 {
                        left.is_empty()
                    } else {
                        left == self.expected
                    };
                    if done + refused < 2 || !is_right {
                        let left: Vec<_> = left.into_keys().collect();
                        wrong.push(format!(
                            "{locks:?} at {at} and {second_at}: {ended:?} {left:?}"
                        ));
                    }
                }
            }
        }
        let line = &self.line;
        eprintln!(
            "{line}: {pairs} pairs, {busy} runs ended by the other one, {both} pairs by each other"
        );
        assert!(both * 10 < pairs, "{line}: {both} of {pairs}");
        assert!(
            wrong.is_empty(),
            "{line}: {} wrong\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
}

#[test]
#[ignore = "minutes: make torture"]
fn fasta_shard_twice() {
    let line = "fasta-shard proteins.fasta --out OUT/set --shards 2 --threads 1";
    Trial::new(Inputs::new(1), line).with_two_runs();
}

#[test]
#[ignore = "minutes: make torture"]
fn pack_batches_twice() {
    let line =
        "pack-batches set/shard-00000.parquet --out OUT/batches.arrow --report OUT/pack.json";
    Trial::new(Inputs::with_shard(1, 64), line).with_two_runs();
}

#[test]
#[ignore = "minutes: make torture"]
fn gpu_embed_twice() {
    let line =
        format!("gpu-embed batches.arrow --out OUT/e.parquet --checkpoint-interval 10ms {EMBED}");
    Trial::new(Inputs::with_batches(1, 64, 512), &line).with_two_runs();
}

#[test]
#[ignore = "minutes: make torture"]
fn combine_twice() {
    let line = "query-embeddings combine sample --out OUT/all --rows-per-file 40";
    Trial::new(Inputs::with_dataset(1), line).with_two_runs();
}
