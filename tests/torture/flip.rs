//! Flipped bits and cut ends: each is refused, wherever it is.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use plmkit_contract::{Exit, Failure, Manifest, Stop};
use plmkit_store::{BatchesFile, EmbeddingsReader, StoreError, read_sealed, read_shard};

use crate::common::{bin, test_data};
use crate::files::{Files, RESIDUES};
use crate::limited::{PATIENCE, run_for};

/// One byte in so many is flipped, each of its bits.
const STEP: usize = 7;
/// One in so many cases goes through the real program as well.
const SAMPLE: usize = 149;

/// Every case: the bytes, and what was done to them.
fn cases(whole: &[u8]) -> impl Iterator<Item = (Vec<u8>, String)> + '_ {
    let flips = (0..whole.len()).step_by(STEP).flat_map(move |at| {
        (0..8).map(move |bit| {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 1 << bit;
            (damaged, format!("bit {bit} of byte {at} flipped"))
        })
    });
    let cuts = (0..whole.len())
        .step_by(64)
        .map(|end| (whole[..end].to_vec(), format!("cut at {end}")));
    flips.chain(cuts)
}

/// Damages `file` in place, case by case. `read` is the library's reader, and `program` a program that reads the file.
fn sweep(
    name: &str,
    file: &Path,
    read: impl Fn(&Path) -> Result<(), StoreError>,
    program: &mut Command,
) {
    let whole = fs::read(file).expect("read");
    read(file).expect("the whole file is read");
    let ended = run_for(program, PATIENCE);
    assert!(ended.status.success(), "{ended:?}");

    let (mut count, mut programs) = (0, 0);
    for (damaged, what) in cases(&whole) {
        fs::write(file, &damaged).expect("write");
        let start = Instant::now();
        let error = read(file).expect_err(&format!("{name}: {what}: accepted"));
        assert_eq!(error.exit(), Exit::Data, "{name}: {what}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        assert!(start.elapsed() < PATIENCE, "{name}: {what}: too slow");
        if count % SAMPLE == 0 {
            let ended = run_for(program, PATIENCE);
            assert!(ended.refused(), "{name}: {what}: {ended:?}");
            programs += 1;
        }
        count += 1;
    }
    fs::write(file, &whole).expect("write");
    let bytes = whole.len();
    println!(
        "{name:<16} {bytes:>8} bytes, {count:>6} cases, all refused; {programs:>4} through the program"
    );
    assert!(count > bytes, "eight flips for each seven bytes");
}

#[test]
#[ignore = "slow: make torture"]
fn shard() {
    let files = Files::new();
    let mut program = bin("pack-batches");
    program.arg(files.shard()).arg("--force").arg("--out");
    program.arg(files.path("packed.arrow"));
    let read = |path: &Path| read_shard(path).map(drop);
    sweep("shard", &files.shard(), read, &mut program);
}

#[test]
#[ignore = "slow: make torture"]
fn batches() {
    let files = Files::new();
    let mut program = bin("gpu-embed");
    program
        .arg(files.batches())
        .arg("--model")
        .arg(test_data("model-tiny"))
        .args(["--force", "--device", "cpu", "--threads", "1", "--out"])
        .arg(files.path("embedded.parquet"));
    let read = |path: &Path| BatchesFile::open(path, &Stop::default()).map(drop);
    sweep("batches", &files.batches(), read, &mut program);
}

fn embeddings(dtype: &str) {
    let files = Files::new();
    let file = files.embeddings(dtype);
    let mut program = bin("validate-embeddings");
    program.arg(&file).arg("--report");
    program.arg(files.path("report.json"));
    let read = |path: &Path| {
        let mut reader = EmbeddingsReader::open(path)?;
        while reader.next_batch()?.is_some() {}
        Ok(())
    };
    sweep(&format!("embeddings {dtype}"), &file, read, &mut program);
}

#[test]
#[ignore = "slow: make torture"]
fn embeddings_f32() {
    embeddings("f32");
}

#[test]
#[ignore = "slow: make torture"]
fn embeddings_f16() {
    embeddings("f16");
}

#[test]
#[ignore = "slow: make torture"]
fn manifest() {
    let files = Files::new();
    let mut program = bin("fasta-shard");
    program
        .arg(test_data("proteins.fasta"))
        .args(["--shards", "1", "--max-residues", RESIDUES, "--out"])
        .arg(files.path("set"));
    let read = |path: &Path| read_sealed::<Manifest>(path).map(drop);
    sweep("manifest", &files.manifest(), read, &mut program);
}
