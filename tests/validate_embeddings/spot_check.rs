//! Faults that only a second computation finds, in embeddings of a tiny model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, RecordBatch, UInt32Array};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
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
        for dtype in ["f32", "int8"] {
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

    fn validate(&self, embeddings: &Path, sample: u64) -> Command {
        let mut command = bin("validate-embeddings");
        command
            .arg(embeddings)
            .arg("--shards")
            .arg(self.path("shards"));
        command.args(["--threads", "1", "--quiet", "--report", "-"]);
        command.arg("--sample").arg(sample.to_string());
        command.arg("--model").arg(test_data("model-tiny"));
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
const FAULTS: [(&str, &str, &str, Change); 4] = [
    ("all rows shifted by one", "f32", "f32", |column| {
        reordered(column, |row, rows| (row + 1) % rows)
    }),
    (
        "all rows shifted by one, in int8",
        "int8",
        "int8",
        |column| reordered(column, |row, rows| (row + 1) % rows),
    ),
    ("times 1.01", "f32", "f32", |column| scaled(column, 1.01)),
    (
        "a file of int8 among those of f32",
        "f32",
        "int8",
        ArrayRef::clone,
    ),
];

#[test]
fn a_second_computation_finds_the_file_whose_vectors_are_of_something_else() {
    let embedded = Embedded::new();
    let verdict = |folder: &Path, code: i32| -> Value {
        let output = embedded.validate(folder, 60).output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        serde_json::from_slice(&output.stdout).expect("a report")
    };
    for dtype in ["f32", "int8"] {
        let report = verdict(&embedded.path(dtype), 0);
        assert_eq!(check(&report, "spot-check")["counts"]["rows"], 60);
        let agreement = report["spot_check"].as_array().expect("columns");
        assert_eq!(agreement.len(), 2);
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
fn a_sample_of_as_many_rows_as_there_are_has_all_of_them() {
    let embedded = Embedded::new();
    let embeddings = embedded.path("f32");
    let spot_checked = |sample: u64| {
        let mut command = embedded.validate(&embeddings, sample);
        let output = command.args(["--seed", "3"]).output().expect("run");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let rows = &check(&report, "spot-check")["counts"]["rows"];
        (rows.as_u64(), report["rows"].as_u64())
    };
    let (all, rows) = spot_checked(1 << 20);
    assert_eq!(all, rows);
    assert_eq!(spot_checked(rows.expect("rows")).0, rows);
    // Eight of each of four shards.
    assert_eq!(spot_checked(3).0, Some(32));
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
    assert_fails(&mut command, 2, "--model and --recomputed need the shards");
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

/// What `recompute` writes for each shard alone is the sample of one run over all.
#[test]
fn shards_that_were_computed_again_one_by_one_are_the_sample_of_all() {
    let embedded = Embedded::new();
    let embeddings = embedded.path("f32");
    fs::create_dir(embedded.path("again")).expect("folder");
    let recompute_to = |name: &str, model: &Path, seed: &str, out: &Path| {
        let mut command = bin("validate-embeddings");
        let file = format!("{name}.parquet");
        command.arg("recompute").arg(embeddings.join(&file));
        command
            .arg("--shards")
            .arg(embedded.path("shards").join(&file));
        let manifest = embedded.path("shards").join("manifest.json");
        command
            .arg("--manifest")
            .arg(manifest)
            .arg("--model")
            .arg(model);
        command.arg("--out").arg(out);
        command.args(["--sample", "60", "--seed", seed, "--threads", "1"]);
        command
    };
    let recompute = |name: &str, model: &Path, seed: &str| {
        let out = embedded.path("again").join(format!("{name}.parquet"));
        recompute_to(name, model, seed, &out)
    };
    let model = test_data("model-tiny");
    for name in NAMES {
        run(&mut recompute(name, &model, "0"));
    }
    let compared = |seed: &str| -> (Option<i32>, Value) {
        let mut command = bin("validate-embeddings");
        command
            .arg(&embeddings)
            .arg("--shards")
            .arg(embedded.path("shards"));
        command
            .arg("--manifest")
            .arg(embedded.path("shards").join("manifest.json"));
        command.arg("--recomputed").arg(embedded.path("again"));
        command.args(["--sample", "60", "--seed", seed, "--quiet", "--report", "-"]);
        let output = command.output().expect("run");
        let report = serde_json::from_slice(&output.stdout).expect("a report");
        (output.status.code(), report)
    };
    let (code, report) = compared("0");
    assert_eq!(code, Some(0));
    assert_eq!(check(&report, "spot-check")["counts"]["rows"], 60);

    // Rows of another choice are no sample.
    run(&mut recompute(NAMES[0], &model, "1"));
    let (code, report) = compared("0");
    assert_eq!((code, failed(&report)), (Some(1), vec!["spot-check"]));
    let missing = &check(&report, "spot-check")["counts"]["not_computed"];
    assert!(missing.as_u64() > Some(0), "{missing}");

    // What does not belong together is refused, and changes nothing.
    let out = embedded.path("again").join(format!("{}.parquet", NAMES[0]));
    let before = fs::read(&out).expect("a sample");
    let command = recompute(NAMES[0], &test_data("model-tiny-bin"), "0");
    assert_fails(command, 65, "expected that of the embeddings");
    assert!(fs::read(&out).expect("a sample") == before);
    let shallow = recompute(NAMES[0], &test_data("model-tiny-esmc"), "0");
    let what = "spot check: gpu-embed: layer 4 does not exist; expected 0 to 2";
    assert_fails(shallow, 65, what);
    for other in [
        "batches/shard-00000.arrow",
        "f32/shard-00001.parquet",
        "again/shard-00001.parquet",
    ] {
        let other = embedded.path(other);
        let before = fs::read(&other).expect("a file");
        let command = recompute_to(NAMES[0], &model, "0", &other);
        assert_fails(command, 73, "exists and is no sample of these shards");
        assert!(fs::read(&other).expect("a file") == before);
    }
    let mut itself = bin("validate-embeddings");
    itself
        .arg(&embeddings)
        .arg("--shards")
        .arg(embedded.path("shards"));
    let expected = "expected rows that validate-embeddings recompute has made of these shards";
    assert_fails(itself.arg("--recomputed").arg(&embeddings), 65, expected);
}

#[test]
fn embeddings_of_other_shards_or_another_manifest_are_not_computed_again() {
    let embedded = Embedded::new();
    let (out, model) = (embedded.path("again.parquet"), test_data("model-tiny"));
    let other = embedded.path("other");
    fs::write(embedded.path("other.fasta"), ">A\nMKVLA\n").expect("write");
    crate::common::shard(&embedded.path("other.fasta"), &other, &[]);
    let of_first = embedded.path("f32").join(format!("{}.parquet", NAMES[0]));
    for (shards, manifest, what) in [
        (
            "shards/shard-00001.parquet",
            "shards",
            "f32/shard-00000.parquet",
        ),
        (
            "other/shard-00000.parquet",
            "other",
            "f32/shard-00000.parquet",
        ),
        ("shards/shard-00000.parquet", "other", "other/manifest.json"),
    ] {
        let mut command = bin("validate-embeddings");
        command
            .arg("recompute")
            .arg(&of_first)
            .arg("--model")
            .arg(&model);
        command
            .arg("--out")
            .arg(&out)
            .arg("--shards")
            .arg(embedded.path(shards));
        command
            .arg("--manifest")
            .arg(embedded.path(manifest).join("manifest.json"));
        assert_fails(&mut command, 65, &format!("{shards}: not a shard of "));
        assert_fails(command, 65, what);
        assert!(!out.exists());
    }
}

#[test]
fn a_shard_without_rows_has_a_sample_without_rows() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("long.fasta"), format!(">a\n{}\n", "MKV".repeat(40))).expect("write");
    let mut shard = bin("fasta-shard");
    shard
        .arg(path("long.fasta"))
        .arg("--out")
        .arg(path("shards"));
    run(shard.args([
        "--shards",
        "1",
        "--long-policy",
        "reject",
        "--max-residues",
        "100",
    ]));
    let shard = path("shards/shard-00000.parquet");
    pack(&shard, &path("batches.arrow"), 1024);
    let model = test_data("model-tiny");
    let mut embed = bin("gpu-embed");
    embed
        .arg(path("batches.arrow"))
        .arg("--out")
        .arg(path("e.parquet"));
    embed.arg("--model").arg(&model);
    run(embed.args(["--device", "cpu", "--threads", "1", "--progress", "none"]));
    for _ in 0..2 {
        let mut recompute = bin("validate-embeddings");
        recompute
            .arg("recompute")
            .arg(path("e.parquet"))
            .arg("--shards")
            .arg(&shard);
        recompute
            .arg("--manifest")
            .arg(path("shards/manifest.json"));
        run(recompute
            .arg("--model")
            .arg(&model)
            .arg("--out")
            .arg(path("again.parquet")));
    }
    let mut validate = bin("validate-embeddings");
    validate.arg(path("e.parquet")).arg("--shards").arg(&shard);
    validate.arg("--recomputed").arg(path("again.parquet"));
    run(validate.args(["--max-rejected", "100%"]));
    // That every record was rejected, the manifest says as well.
    let mut rejected = bin("validate-embeddings");
    rejected.arg(path("e.parquet")).arg("--shards").arg(&shard);
    rejected.arg("--manifest").arg(path("shards/manifest.json"));
    let output = rejected.output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let what = "every record was rejected, see rejects.csv: 1 too_long";
    assert!(said.contains(what), "{said}");
    run(rejected.args(["--max-rejected", "100%"]));
}

#[test]
fn a_set_without_records_passes_only_where_that_is_expected() {
    let folder = tempfile::tempdir().expect("temp folder");
    fs::write(folder.path().join("none.fasta"), "").expect("write");
    let run_of = |line: &str| crate::common::command(folder.path(), line);
    let shards = "fasta-shard none.fasta --out set/shards --shards 1 --allow-empty";
    run(&mut run_of(shards));
    let shard = "set/shards/shard-00000.parquet";
    run(&mut run_of(&format!(
        "pack-batches {shard} --out none.arrow"
    )));
    fs::create_dir(folder.path().join("set/embeddings")).expect("folder");
    let mut embed = run_of("gpu-embed none.arrow --out set/embeddings/none.parquet --device cpu");
    run(embed.arg("--model").arg(test_data("model-tiny")));
    let validate = "validate-embeddings --dataset set";
    let output = run_of(validate).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the embeddings have no rows"), "{said}");
    run(&mut run_of(&format!("{validate} --max-rejected 100%")));
}

/// Rounding changes a value by a share of itself, and logits are far from zero.
#[test]
fn logits_that_are_stored_in_f16_are_no_fault() {
    let embedded = Embedded::new();
    let out = embedded.path("logits.parquet");
    let mut embed = bin("gpu-embed");
    embed.arg(embedded.path("batches/shard-00000.arrow"));
    embed
        .arg("--out")
        .arg(&out)
        .arg("--model")
        .arg(test_data("model-tiny"));
    embed.args([
        "--device",
        "cpu",
        "--logits",
        "--windows",
        "separate",
        "--contacts",
        "--residues",
        "--pool",
        "mean,max,std,bos",
    ]);
    run(embed.args([
        "--store-dtype",
        "f16",
        "--threads",
        "1",
        "--progress",
        "none",
    ]));
    let mut validate = bin("validate-embeddings");
    validate
        .arg(&out)
        .arg("--model")
        .arg(test_data("model-tiny"));
    validate
        .arg("--shards")
        .arg(embedded.path("shards/shard-00000.parquet"));
    run(validate.args(["--threads", "1"]));
}

#[test]
fn a_question_put_wrongly_changes_no_verdict() {
    let embedded = Embedded::new();
    let folder = embedded.path("dataset");
    fs::create_dir(&folder).expect("folder");
    fs::rename(embedded.path("f32"), folder.join("embeddings")).expect("rename");
    fs::rename(embedded.path("shards"), folder.join("shards")).expect("rename");
    let validate = |options: &[&str], model: &str| {
        let mut command = bin("validate-embeddings");
        command
            .arg("--dataset")
            .arg(&folder)
            .arg("--model")
            .arg(test_data(model));
        command
            .args(["--sample", "8", "--threads", "1", "--quiet"])
            .args(options);
        command
    };
    run(&mut validate(&[], "model-tiny"));
    let verdict = || fs::read(folder.join("dataset.json")).expect("a verdict");
    let passed = verdict();
    assert_fails(
        &mut validate(&[], "model-tiny-bin"),
        65,
        "expected that of the embeddings",
    );
    assert_fails(
        &mut validate(&["--max-rejected", "1%%"], "model-tiny"),
        2,
        "expected a share such as 1% or 0.01",
    );
    assert_eq!(verdict(), passed);

    let combine = |out: &str| {
        let mut command = bin("query-embeddings");
        command.arg("combine").arg(&folder);
        command.arg("--out").arg(embedded.path(out));
        command
    };

    // A reference that is not met is a verdict: until the next one that passes, the dataset is refused.
    let part = format!("embeddings/{}.parquet", NAMES[0]);
    let other = embedded.path("other.parquet");
    fs::copy(folder.join(&part), &other).expect("copy");
    plant(&other, &folder.join(part), |column| scaled(column, -1.0));
    let wrong = ["--reference", other.to_str().expect("a path")];
    assert_fails(
        &mut validate(&wrong, "model-tiny"),
        1,
        "expected at least 0.999",
    );
    assert_ne!(verdict(), passed);
    assert_fails(&mut combine("one"), 65, "found one that failed");
    run(&mut validate(&[], "model-tiny"));
    assert_eq!(verdict(), passed);
    run(&mut combine("one"));

    // A sample that differs says it.
    let file = folder
        .join("embeddings")
        .join(format!("{}.parquet", NAMES[1]));
    let sound = fs::read(&file).expect("embeddings");
    plant(&file, &file, |column| scaled(column, 1.01));
    assert_fails(&mut validate(&[], "model-tiny"), 1, "spot-check");
    assert_fails(&mut combine("two"), 65, "");
    fs::write(&file, sound).expect("restore");
    run(&mut validate(&[], "model-tiny"));
    assert_eq!(verdict(), passed);
}
