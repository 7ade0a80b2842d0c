//! Flipped bits and truncations of data files: readers and programs refuse every one.

use std::fs;
use std::path::Path;
use std::time::Instant;

use plmkit_contract::{Kind, Manifest};
use plmkit_kit::{Exit, Failure, Stop};
use plmkit_store::{
    BatchesFile, EmbeddingsReader, RecordListReader, StoreError, read_sealed, read_shard,
};

use crate::inputs::{EMBED, Inputs};
use crate::limited::{PATIENCE, run_for};

/// Every bit of one in this many bytes is flipped.
const STEP: usize = 7;
/// One in this many cases also runs through the real program.
const SAMPLE: usize = 149;

/// Iterates over all cases: the bytes, and a description.
fn cases(whole: &[u8]) -> impl Iterator<Item = (Vec<u8>, String)> + '_ {
    let flips = (0..whole.len()).step_by(STEP).flat_map(move |at| {
        (0..8).map(move |bit| {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 1 << bit;
            (damaged, format!("bit {bit} of byte {at} flipped"))
        })
    });
    let cuts = (0..whole.len()).step_by(64);
    flips.chain(cuts.map(|end| (whole[..end].to_vec(), format!("cut at {end}"))))
}

/// Damages the file `name` of `inputs` in place, case by case. `read` is the library's reader, and `line` a program that reads the
/// file.
fn sweep(inputs: &Inputs, name: &str, read: impl Fn(&Path) -> Result<(), StoreError>, line: &str) {
    let file = inputs.path(name);
    let whole = fs::read(&file).expect("read");
    read(&file).expect("the intact file is read");
    let result = run_for(&mut inputs.command(line), PATIENCE);
    assert!(result.status.success(), "{result:?}");

    let (mut count, mut programs) = (0, 0);
    for (damaged, what) in cases(&whole) {
        fs::write(&file, &damaged).expect("write");
        let start = Instant::now();
        let error = read(&file).expect_err(&format!("{name}: {what}: accepted"));
        assert_eq!(error.exit(), Exit::Data, "{name}: {what}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        assert!(start.elapsed() < PATIENCE, "{name}: {what}: too slow");
        if count % SAMPLE == 0 {
            let result = run_for(&mut inputs.command(line), PATIENCE);
            assert!(result.is_refusal(), "{name}: {what}: {result:?}");
            programs += 1;
        }
        count += 1;
    }
    let bytes = whole.len();
    println!("{name:<24} {bytes:>8} bytes, {count:>6} cases, {programs:>4} through the program");
    assert!(count > bytes, "eight flips for each seven bytes");
}

#[test]
#[ignore = "slow: make torture"]
fn shard() {
    let pack = "pack-batches set/shard-00000.parquet --force --out packed.arrow";
    let read = |path: &Path| read_shard(path).map(drop);
    let inputs = Inputs::with_shard(1, 100);
    sweep(&inputs, "set/shard-00000.parquet", read, pack);
}

#[test]
#[ignore = "slow: make torture"]
fn batches() {
    let embed = format!("gpu-embed batches.arrow --force --out embedded.parquet {EMBED}");
    let read = |path: &Path| BatchesFile::open(path, &Stop::default()).map(drop);
    let inputs = Inputs::with_batches(1, 100, 2000);
    sweep(&inputs, "batches.arrow", read, &embed);
}

#[test]
#[ignore = "slow: make torture"]
fn embeddings() {
    let inputs = Inputs::with_batches(1, 100, 2000);
    for dtype in ["f32", "f16"] {
        let name = format!("{dtype}.parquet");
        let options = format!("--store-dtype {dtype} --out {name} {EMBED}");
        inputs.run(&format!("gpu-embed batches.arrow {options}"));
        let read = |path: &Path| {
            let mut reader = EmbeddingsReader::open(path)?;
            while reader.next_batch()?.is_some() {}
            Ok(())
        };
        let validate = format!("validate-embeddings {name} --report report.json");
        sweep(&inputs, &name, read, &validate);
    }
}

#[test]
#[ignore = "slow: make torture"]
fn aliases() {
    let inputs = Inputs::new(2);
    let again = "fasta-shard proteins.fasta --shards 1 --max-residues 100 --dedup --out set";
    inputs.run(again);
    let read = |path: &Path| {
        let mut reader = RecordListReader::open(path, Kind::Aliases)?;
        while reader.next_batch()?.is_some() {}
        Ok(())
    };
    sweep(&inputs, "set/aliases.parquet", read, again);
}

#[test]
#[ignore = "slow: make torture"]
fn manifest() {
    let again = "fasta-shard proteins.fasta --shards 1 --max-residues 100 --out set";
    let read = |path: &Path| read_sealed::<Manifest>(path).map(drop);
    let inputs = Inputs::with_shard(1, 100);
    sweep(&inputs, "set/manifest.json", read, again);
}
