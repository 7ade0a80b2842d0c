//! Inputs, and the commands that work on them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{bin, run, test_data};

/// The test proteins, `copies` times, with ids of their own.
pub(crate) fn write_fasta(path: &Path, copies: usize) {
    let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("proteins");
    let mut fasta = String::new();
    for copy in 0..copies {
        for record in proteins.split('>').skip(1) {
            write!(fasta, ">{copy}-{record}").expect("memory");
        }
    }
    fs::write(path, fasta).expect("write");
}

/// A shard of the test proteins, `copies` times, each cut to 64 residues: the files matter here, not the model's time.
pub(crate) fn write_shard(folder: &Path, copies: usize) -> PathBuf {
    let fasta = folder.join("proteins.fasta");
    write_fasta(&fasta, copies);
    let shards = folder.join("shards");
    run(bin("fasta-shard")
        .args(["--shards", "1", "--max-residues", "64"])
        .arg(fasta)
        .arg("--out")
        .arg(&shards));
    shards.join("shard-00000.parquet")
}

/// `pack-batches`, from `shard` to a batches file and a report in `folder`.
pub(crate) fn pack(shard: &Path, folder: &Path) -> Command {
    let mut command = bin("pack-batches");
    command
        .arg(shard)
        .arg("--out")
        .arg(folder.join("batches.arrow"));
    command.arg("--report").arg(folder.join("pack.json"));
    command
}

/// `gpu-embed`, from `batches` to an embeddings file in `folder`.
pub(crate) fn embed(batches: &Path, folder: &Path) -> Command {
    let mut command = bin("gpu-embed");
    command
        .arg(batches)
        .arg("--out")
        .arg(folder.join("embeddings.parquet"));
    command.arg("--model").arg(test_data("model-tiny"));
    command.args(["--device", "cpu", "--threads", "1", "--progress", "none"]);
    command
}
