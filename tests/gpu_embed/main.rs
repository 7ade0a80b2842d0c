//! `gpu-embed`, the real program.

mod blocks;
#[path = "../common/mod.rs"]
mod common;
mod crashes;
mod devices;
mod download;
mod engine;
mod library;
mod masked;
mod outputs;
mod resume;
mod run;
mod windows;

use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plmkit_store::EmbeddingsReader;

/// Every kind of output, of all layers.
const EVERY_OUTPUT: [&str; 5] = ["--layers", "all", "--residues", "--logits", "--contacts"];

/// Standard error of a program that has ended.
fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a program that must end with `code`, and returns its standard error.
fn ends(command: &mut Command, code: i32) -> String {
    let output = command.output().expect("the program starts");
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    stderr
}

#[track_caller]
fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "expected '{part}' in: {text}");
}

/// A run of `validate-embeddings`.
fn validate(embeddings: &Path) -> Command {
    let mut command = common::bin("validate-embeddings");
    command.arg(embeddings);
    command
}

/// A run of `validate-embeddings` against a shard.
fn validate_shard(embeddings: &Path, shard: &Path) -> Command {
    let mut command = validate(embeddings);
    command.arg("--shards").arg(shard);
    // Tests of what is rejected have few sequences.
    command.args(["--max-rejected", "100%"]);
    command
}

/// All record batches of an embeddings file.
fn rows(path: &Path) -> Vec<arrow_array::RecordBatch> {
    let mut reader = EmbeddingsReader::open(path).expect("open");
    std::iter::from_fn(|| reader.next_batch().expect("verified")).collect()
}

/// Waits until `done`, while the process runs.
fn wait_until(child: &mut Child, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !done() {
        assert!(Instant::now() < deadline, "it takes too long");
        if let Some(status) = child.try_wait().expect("wait") {
            panic!("it ended before that: {status}");
        }
        sleep(Duration::from_millis(1));
    }
}

/// Changes a bit of a file, at a share of its length.
fn flip(path: &Path, share: f64) {
    let mut bytes = std::fs::read(path).expect("read");
    let place = (bytes.len() as f64 * share) as usize;
    bytes[place] ^= 4;
    std::fs::write(path, bytes).expect("write");
}
