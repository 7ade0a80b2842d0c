//! Flipped bits and cut ends: each is harmless or refused, never a wrong value.

use std::fs;
use std::panic;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, Int32Array, RecordBatch};
use plmkit_contract::{Exit, Failure, Manifest, Stop, is_guarded};
use plmkit_store::{BatchesFile, EmbeddingsReader, StoreError, read_sealed, read_shard};

use crate::common::{bin, test_data};
use crate::files::{Files, RESIDUES};
use crate::limited::{PATIENCE, run_for};

/// Flipped positions of a file, at least; a smaller file is flipped at every byte.
const POSITIONS: usize = 2500;
/// One in so many cases goes through the real program as well.
const SAMPLE: usize = 19;

/// All that a reader gives: what must not change unseen.
#[derive(Debug, PartialEq)]
struct Content {
    columns: Vec<Vec<ArrayRef>>,
    about: String,
}

/// The values of a column. The name that a file gives the items of a list is of no concern to any reader.
fn values(column: &ArrayRef) -> Vec<ArrayRef> {
    if let Some(list) = column.as_list_opt::<i32>() {
        let offsets = Int32Array::from(list.value_offsets().to_vec());
        vec![Arc::new(offsets), Arc::clone(list.values())]
    } else if let Some(list) = column.as_fixed_size_list_opt() {
        vec![Arc::clone(list.values())]
    } else {
        vec![Arc::clone(column)]
    }
}

fn columns(batch: &RecordBatch) -> Vec<ArrayRef> {
    batch.columns().iter().flat_map(values).collect()
}

/// A decoder's panic is an error of its file: nothing to print.
fn hush() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !is_guarded() {
                print(info);
            }
        }));
    });
}

#[derive(Default)]
struct Counts {
    cases: usize,
    refused: usize,
    harmless: usize,
    programs: usize,
}

/// Every case: the bytes, and what was done to them.
fn cases(whole: &[u8]) -> impl Iterator<Item = (Vec<u8>, String)> + '_ {
    let step = (whole.len() / POSITIONS).max(1);
    let flips = (0..whole.len())
        .step_by(step)
        .enumerate()
        .map(|(count, at)| {
            let bit = count % 8;
            let mut damaged = whole.to_vec();
            damaged[at] ^= 1 << bit;
            (damaged, format!("bit {bit} of byte {at} flipped"))
        });
    let cuts = (0..whole.len())
        .step_by(64)
        .map(|end| (whole[..end].to_vec(), format!("cut at {end}")));
    flips.chain(cuts)
}

/// Damages `file` in place, case by case. `read` is the library's reader; `program` is a program that reads the file,
/// and `output` what it makes of it.
fn sweep(
    name: &str,
    file: &Path,
    read: impl Fn(&Path) -> Result<Content, StoreError>,
    program: impl Fn() -> Command,
    output: Option<&Path>,
) {
    hush();
    let whole = fs::read(file).expect("read");
    let expected = read(file).expect("the whole file is read");
    let run = || {
        if let Some(output) = output {
            let _ = fs::remove_file(output);
        }
        let ended = run_for(&mut program(), PATIENCE);
        (ended, output.map(|output| fs::read(output).ok()))
    };
    let (ended, made) = run();
    assert!(ended.status.success(), "{ended:?}");

    let mut counts = Counts::default();
    for (count, (damaged, what)) in cases(&whole).enumerate() {
        fs::write(file, &damaged).expect("write");
        let start = Instant::now();
        counts.cases += 1;
        match read(file) {
            Ok(content) => {
                assert!(content == expected, "{name}: {what}: another content");
                counts.harmless += 1;
            }
            Err(error) => {
                assert_eq!(error.exit(), Exit::Data, "{name}: {what}: {error}");
                assert_eq!(error.to_string().lines().count(), 1, "{error}");
                counts.refused += 1;
            }
        }
        assert!(start.elapsed() < PATIENCE, "{name}: {what}: too slow");
        if count % SAMPLE == 0 {
            let (ended, now) = run();
            let harmless = ended.status.success() && now == made && read(file).is_ok();
            assert!(harmless || ended.refused(), "{name}: {what}: {ended:?}");
            counts.programs += 1;
        }
    }
    fs::write(file, &whole).expect("write");
    println!(
        "{name:<16} {:>8} bytes, {:>5} cases: {:>5} refused, {:>3} harmless; {:>3} through the program",
        whole.len(),
        counts.cases,
        counts.refused,
        counts.harmless,
        counts.programs
    );
    assert!(counts.cases >= POSITIONS || whole.len() < POSITIONS);
}

#[test]
#[ignore = "slow: make torture"]
fn shard() {
    let files = Files::new();
    let read = |path: &Path| {
        let table = read_shard(path)?;
        let batches = table.batches.iter().map(columns);
        Ok(Content {
            columns: batches.collect(),
            about: format!("{:?} {}", table.provenance, table.digest),
        })
    };
    let out = files.path("packed.arrow");
    let program = || {
        let mut command = bin("pack-batches");
        command.arg(files.shard()).arg("--out").arg(&out);
        command
    };
    sweep("shard", &files.shard(), read, program, Some(&out));
}

#[test]
#[ignore = "slow: make torture"]
fn batches() {
    let files = Files::new();
    let read = |path: &Path| {
        let file = BatchesFile::open(path, &Stop::default())?;
        let packs = (0..file.len())
            .map(|index| Ok(columns(file.batch(index)?.record_batch())))
            .collect::<Result<_, StoreError>>()?;
        Ok(Content {
            columns: packs,
            about: format!("{:?} {}", file.provenance(), file.digest()),
        })
    };
    let out = files.path("embedded.parquet");
    let program = || {
        let mut command = bin("gpu-embed");
        command
            .arg(files.batches())
            .arg("--model")
            .arg(test_data("model-tiny"))
            .args(["--device", "cpu", "--threads", "1", "--out"])
            .arg(&out);
        command
    };
    sweep("batches", &files.batches(), read, program, Some(&out));
}

fn embeddings(dtype: &str) {
    let files = Files::new();
    let file = files.embeddings(dtype);
    let read = |path: &Path| {
        let mut reader = EmbeddingsReader::open(path)?;
        let mut batches = Vec::new();
        while let Some(batch) = reader.next_batch()? {
            batches.push(columns(&batch));
        }
        Ok(Content {
            columns: batches,
            about: format!(
                "{:?} {:?} {}",
                reader.layout(),
                reader.provenance(),
                reader.digest()
            ),
        })
    };
    let report = files.path("report.json");
    let program = || {
        let mut command = bin("validate-embeddings");
        command.arg(&file).arg("--report").arg(&report);
        command
    };
    let name = format!("embeddings {dtype}");
    sweep(&name, &file, read, program, Some(&report));
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
    let read = |path: &Path| {
        let about = format!("{:?}", read_sealed::<Manifest>(path)?);
        Ok(Content {
            columns: Vec::new(),
            about,
        })
    };
    let program = || {
        let mut command = bin("fasta-shard");
        command
            .arg(test_data("proteins.fasta"))
            .args(["--shards", "1", "--max-residues", RESIDUES, "--out-dir"])
            .arg(files.path("set"));
        command
    };
    sweep("manifest", &files.manifest(), read, program, None);
}
