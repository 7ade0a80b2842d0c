//! Faults that only a second computation finds, in embeddings of a tiny model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{DataType, Float32Type, SchemaRef};
use plmkit_contract::KEY_COLUMNS;
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};
use serde_json::Value;

use crate::common::{assert_fails, bin, pack, run, test_data};
use crate::set::{check, failed};

/// Four embeddings files of 100 proteins, some in windows, and their shards.
struct Embedded(tempfile::TempDir);

impl Embedded {
    fn new() -> Self {
        let embedded = Self(tempfile::tempdir().expect("temp folder"));
        let shards = embedded.path("shards");
        let mut shard = bin("fasta-shard");
        shard
            .arg(test_data("proteins.fasta"))
            .arg("--out")
            .arg(&shards);
        run(shard.args([
            "--shards",
            "4",
            "--long-policy",
            "window",
            "--max-residues",
            "200",
            "--overlap",
            "40",
        ]));
        fs::create_dir(embedded.path("batches")).expect("folder");
        for name in NAMES {
            let shard = shards.join(format!("{name}.parquet"));
            pack(
                &shard,
                &embedded.path("batches").join(format!("{name}.arrow")),
                4096,
            );
        }
        for dtype in ["f32", "bf16"] {
            fs::create_dir(embedded.path(dtype)).expect("folder");
            for name in NAMES {
                let mut command = bin("gpu-embed");
                command.arg(embedded.path("batches").join(format!("{name}.arrow")));
                command
                    .arg("--out")
                    .arg(embedded.path(dtype).join(format!("{name}.parquet")));
                command.arg("--model").arg(test_data("model-tiny"));
                command.args(["--device", "cpu", "--dtype", dtype, "--pool", "mean,max"]);
                run(command.args(["--threads", "1", "--progress", "none"]));
            }
        }
        embedded
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn validate(&self, embeddings: &Path) -> Command {
        let mut command = bin("validate-embeddings");
        command
            .arg(embeddings)
            .arg("--shards")
            .arg(self.path("shards"));
        command.args([
            "--sample",
            "60",
            "--threads",
            "1",
            "--quiet",
            "--report",
            "-",
            "--model",
        ]);
        command.arg(test_data("model-tiny"));
        command
    }
}

/// The place of the last column that a model did not compute.
const N_WINDOWS: usize = KEY_COLUMNS.len();

const NAMES: [&str; 4] = ["shard-00000", "shard-00001", "shard-00002", "shard-00003"];

/// The vectors of all rows in another order.
fn reordered(column: &ArrayRef, order: impl Fn(u32, u32) -> u32) -> ArrayRef {
    let rows = column.len() as u32;
    let order = UInt32Array::from_iter_values((0..rows).map(|row| order(row, rows)));
    take(column, &order, None).expect("rows")
}

/// All values times `by`.
fn scaled(column: &ArrayRef, by: f32) -> ArrayRef {
    let vectors = column.as_fixed_size_list();
    let values = vectors.values().as_primitive::<Float32Type>();
    let values = values.unary::<_, Float32Type>(|value| value * by);
    let DataType::FixedSizeList(item, dim) = vectors.data_type() else {
        unreachable!("a column of vectors");
    };
    let vectors = FixedSizeListArray::new(item.clone(), *dim, Arc::new(values), None);
    Arc::new(vectors)
}

/// Writes a file anew with its own metadata and the vectors of another, changed.
fn plant(to: &Path, from: &Path, change: impl Fn(&ArrayRef) -> ArrayRef) {
    let metadata = EmbeddingsReader::open(to).expect("embeddings");
    let mut reader = EmbeddingsReader::open(from).expect("embeddings");
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch().expect("rows") {
        batches.push(batch);
    }
    let rows = concat_batches(reader.schema(), &batches).expect("one schema");
    let columns = rows.columns().iter().enumerate();
    let columns = columns.map(|(place, column)| match place {
        0..=N_WINDOWS => ArrayRef::clone(column),
        _ => change(column),
    });
    let mut writer = EmbeddingsWriter::create(to, metadata.layout()).expect("create");
    let changed = RecordBatch::try_new(SchemaRef::clone(writer.schema()), columns.collect());
    writer
        .write(&changed.expect("the same columns"))
        .expect("write");
    writer.finish(metadata.provenance()).expect("finish");
}

type Change = fn(&ArrayRef) -> ArrayRef;

/// What is planted in the second file: the type in which all were computed, that of the rows in the file, and a change.
const FAULTS: [(&str, &str, &str, Change); 5] = [
    ("all rows shifted by one", "f32", "f32", |column| {
        reordered(column, |row, rows| (row + 1) % rows)
    }),
    (
        "all rows shifted by one, in bf16",
        "bf16",
        "bf16",
        |column| reordered(column, |row, rows| (row + 1) % rows),
    ),
    ("times 1.01", "f32", "f32", |column| scaled(column, 1.01)),
    (
        "a file of bf16 among those of f32",
        "f32",
        "bf16",
        ArrayRef::clone,
    ),
    (
        "a file of f32 among those of bf16",
        "bf16",
        "f32",
        ArrayRef::clone,
    ),
];

#[test]
fn a_second_computation_finds_the_file_whose_vectors_are_of_something_else() {
    let embedded = Embedded::new();
    let verdict = |folder: &Path, code: i32| -> Value {
        let output = embedded.validate(folder).output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        serde_json::from_slice(&output.stdout).expect("a report")
    };
    for dtype in ["f32", "bf16"] {
        let report = verdict(&embedded.path(dtype), 0);
        assert_eq!(check(&report, "spot-check")["counts"]["rows"], 60);
        let agreement = report["spot_check"].as_array().expect("files");
        assert_eq!(agreement.len(), 8, "two columns of four files");
        let differences = agreement.iter().map(|file| file["max_difference"].as_f64());
        let largest = differences
            .map(|one| one.expect("a number"))
            .fold(0.0, f64::max);
        assert!(
            if dtype == "f32" {
                largest == 0.0
            } else {
                largest > 1e-3
            },
            "{largest}"
        );
    }
    for (name, dtype, from, change) in FAULTS {
        let folder = embedded.path("planted");
        fs::create_dir(&folder).expect("folder");
        for name in NAMES.map(|name| format!("{name}.parquet")) {
            fs::copy(embedded.path(dtype).join(&name), folder.join(&name)).expect("copy");
        }
        let file = format!("{}.parquet", NAMES[1]);
        plant(
            &folder.join(&file),
            &embedded.path(from).join(&file),
            change,
        );
        let report = verdict(&folder, 1);
        assert_eq!(failed(&report), ["spot-check"], "{name}");
        let named = check(&report, "spot-check")["offenders"].to_string();
        assert!(
            named.contains(NAMES[1]) && !named.contains(NAMES[2]),
            "{name}: {named}"
        );
        fs::remove_dir_all(folder).expect("remove");
    }
}

#[test]
fn a_spot_check_needs_the_model_and_the_shards() {
    let embedded = Embedded::new();
    let embeddings = embedded.path("f32");
    let mut command = bin("validate-embeddings");
    command
        .arg(&embeddings)
        .arg("--model")
        .arg(test_data("model-tiny"));
    assert_fails(&mut command, 2, "--model needs the shards");
    let mut command = bin("validate-embeddings");
    command
        .arg(&embeddings)
        .arg("--shards")
        .arg(embedded.path("shards"));
    assert_fails(
        command.arg("--model").arg(embedded.path("none")),
        66,
        "none: ",
    );
}
