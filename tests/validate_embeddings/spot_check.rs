//! Faults that only a second computation finds, in embeddings of a tiny model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, ListArray, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};
use serde_json::Value;

use crate::common::{assert_fails, command, run, test_data};
use crate::set::{check, failed};

/// Dimensions of the tiny model.
const DIM: usize = 64;

const VOCABULARY: usize = plmkit_contract::VOCABULARY;

/// A command line in a folder. `model-tiny`, or a name that begins so, is that model of the test data.
pub(crate) fn line(folder: &Path, line: &str) -> Command {
    let model = test_data("model-tiny");
    let model = model.to_str().expect("UTF-8");
    command(folder, &line.replace("model-tiny", model))
}

/// Four shards of 100 proteins, some in windows, and their batches.
struct Embedded(tempfile::TempDir);

impl Embedded {
    fn new() -> Self {
        let embedded = Self(tempfile::tempdir().expect("temp folder"));
        fs::copy(test_data("proteins.fasta"), embedded.path("in.fasta")).expect("copy");
        let windows = "--long-policy window --max-residues 200 --overlap 40";
        embedded.run(&format!(
            "fasta-shard in.fasta --out shards --shards 4 {windows}"
        ));
        fs::create_dir(embedded.path("batches")).expect("folder");
        for name in NAMES {
            let pack = format!("pack-batches shards/{name}.parquet --out batches/{name}.arrow");
            embedded.run(&format!("{pack} --max-batch-tokens 4096"));
        }
        embedded
    }

    /// With embeddings in the folder `f32`.
    fn in_f32() -> Self {
        let embedded = Self::new();
        embedded.embed("f32", "--pool mean,max");
        embedded
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, text: &str) -> Command {
        line(self.0.path(), text)
    }

    fn run(&self, line: &str) {
        run(&mut self.command(line));
    }

    /// Embeds all shards to a folder.
    fn embed(&self, folder: &str, options: &str) {
        fs::create_dir(self.path(folder)).expect("folder");
        for name in NAMES {
            let files = format!("batches/{name}.arrow --out {folder}/{name}.parquet");
            let options = format!("--model model-tiny --device cpu --progress none {options}");
            self.run(&format!("gpu-embed {files} --threads 1 {options}"));
        }
    }

    /// The report on a folder of embeddings beside a second computation of a sample.
    fn report(&self, folder: &str, options: &str, code: i32) -> Value {
        let files = format!("{folder} --shards shards --model model-tiny");
        let options = format!("--threads 1 --quiet --report - {options}");
        let mut command = self.command(&format!("validate-embeddings {files} {options}"));
        let output = command.output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{folder}: {stderr}");
        serde_json::from_slice(&output.stdout).expect("a report")
    }
}

const NAMES: [&str; 4] = ["shard-00000", "shard-00001", "shard-00002", "shard-00003"];

/// The values of each row of a column.
fn values(column: &ArrayRef) -> Vec<Vec<f32>> {
    let (rows, width) = match column.data_type() {
        DataType::FixedSizeList(_, width) => {
            (column.as_fixed_size_list().values(), *width as usize)
        }
        DataType::List(_) => (column.as_list::<i32>().values(), 0),
        _ => unreachable!("a column of vectors"),
    };
    let inner = match rows.data_type() {
        DataType::FixedSizeList(_, width) => *width as usize,
        _ => 1,
    };
    let leaves = match rows.as_fixed_size_list_opt() {
        Some(vectors) => vectors.values().as_primitive::<Float32Type>(),
        None => rows.as_primitive::<Float32Type>(),
    };
    let mut rest = leaves.values().iter().copied();
    let lengths = (0..column.len()).map(|row| match width {
        0 => column.as_list::<i32>().value_length(row) as usize * inner,
        width => width,
    });
    lengths
        .map(|length| rest.by_ref().take(length).collect())
        .collect()
}

/// The same lists of other values.
fn with_values(array: &ArrayRef, values: &mut impl Iterator<Item = f32>) -> ArrayRef {
    match array.data_type() {
        DataType::FixedSizeList(item, width) => {
            let inner = with_values(array.as_fixed_size_list().values(), values);
            Arc::new(FixedSizeListArray::new(item.clone(), *width, inner, None))
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let (inner, offsets) = (with_values(list.values(), values), list.offsets().clone());
            Arc::new(ListArray::new(item.clone(), offsets, inner, None))
        }
        _ => Arc::new(Float32Array::from_iter_values(values.take(array.len()))),
    }
}

/// Changes the values of all rows of a column.
type Change = fn(&mut [Vec<f32>]);

/// Writes a file anew with its own metadata and the values of another, changed in the columns whose names begin so.
fn plant(to: &Path, from: &Path, columns: &str, change: Change) {
    let metadata = EmbeddingsReader::open(to).expect("embeddings");
    let mut reader = EmbeddingsReader::open(from).expect("embeddings");
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch().expect("rows") {
        batches.push(batch);
    }
    let rows = concat_batches(reader.schema(), &batches).expect("one schema");
    let mut changed = rows.columns().to_vec();
    for (place, name) in rows
        .schema()
        .fields()
        .iter()
        .map(|field| field.name())
        .enumerate()
    {
        if place >= reader.layout().keys() && name.starts_with(columns) {
            let mut values = values(&changed[place]);
            change(&mut values);
            changed[place] = with_values(&changed[place], &mut values.into_iter().flatten());
        }
    }
    let mut writer = EmbeddingsWriter::create(to, metadata.layout()).expect("create");
    let changed = RecordBatch::try_new(SchemaRef::clone(writer.schema()), changed);
    writer
        .write(&changed.expect("the same columns"))
        .expect("write");
    writer.finish(metadata.provenance()).expect("finish");
}

/// Changes each value.
fn each(rows: &mut [Vec<f32>], change: fn(f32) -> f32) {
    for value in rows.iter_mut().flatten() {
        *value = change(*value);
    }
}

/// Changes each vector of so many values.
fn vectors(rows: &mut [Vec<f32>], width: usize, change: fn(&mut [f32])) {
    rows.iter_mut()
        .flat_map(|row| row.chunks_mut(width))
        .for_each(change);
}

/// A map of contacts.
struct Map {
    values: Vec<f32>,
    length: usize,
}

impl Map {
    /// The value of a pair of residues; after the last comes the first.
    fn at(&self, i: usize, j: usize) -> f32 {
        self.values[i % self.length * self.length + j % self.length]
    }
}

/// Changes each map of contacts: the value of a pair of residues, by those of before.
fn maps(rows: &mut [Vec<f32>], value: fn(&Map, usize, usize) -> f32) {
    for values in rows {
        let length = values.len().isqrt();
        let old = Map {
            values: values.clone(),
            length,
        };
        for (place, new) in values.iter_mut().enumerate() {
            *new = value(&old, place / length, place % length);
        }
    }
}

/// What is planted in the second file: the checks that fail, the change, the folder of the file with its columns, all or those whose
/// names begin so, and what it does.
const FAULTS: &[(&str, &str, &str, Change)] = &[
    ("spot-check", "all rows shifted by one", "f32", |rows| {
        rows.rotate_left(1);
    }),
    (
        "spot-check",
        "all rows shifted by one, in int8",
        "int8",
        |rows| rows.rotate_left(1),
    ),
    ("spot-check", "rows reversed", "f32", |rows| rows.reverse()),
    ("spot-check", "times 1.01", "f32", |rows| {
        each(rows, |value| value * 1.01);
    }),
    ("spot-check", "a maximum times 1.001", "f32/max", |rows| {
        each(rows, |value| value * 1.001);
    }),
    ("spot-check", "rounded to bf16", "f32/mean", |rows| {
        each(rows, |value| f32::from_bits(value.to_bits() & 0xffff_0000));
    }),
    ("spot-check", "channels rotated by one", "f32", |rows| {
        vectors(rows, DIM, |vector| vector.rotate_left(1));
    }),
    (
        "pooling spot-check",
        "two channels exchanged",
        "f32/mean",
        |rows| {
            vectors(rows, DIM, |vector| vector.swap(8, 9));
        },
    ),
    ("spot-check", "the sign of a channel", "f32/mean", |rows| {
        vectors(rows, DIM, |vector| vector[7] *= -1.0);
    }),
    (
        "zero pooling constant spot-check",
        "the last half zero",
        "f32/mean",
        |rows| {
            vectors(rows, DIM, |vector| vector[DIM / 2..].fill(0.0));
        },
    ),
    (
        "pooling spot-check",
        "variance for deviation",
        "all/std",
        |rows| each(rows, |value| value * value),
    ),
    (
        "spot-check",
        "twice the vector of <cls>",
        "all/bos",
        |rows| {
            each(rows, |value| 2.0 * value);
        },
    ),
    ("spot-check", "residues reversed", "all/residues", |rows| {
        for row in rows {
            let reversed: Vec<f32> = row.chunks(DIM).rev().flatten().copied().collect();
            *row = reversed;
        }
    }),
    (
        "spot-check",
        "two residues exchanged",
        "all/residues",
        |rows| {
            for row in rows.iter_mut().filter(|row| row.len() > DIM) {
                let (first, second) = row.split_at_mut(DIM);
                first.swap_with_slice(&mut second[..DIM]);
            }
        },
    ),
    (
        "pooling spot-check",
        "the first residue lost, and all shifted",
        "all/residues",
        |rows| {
            for row in rows {
                row.copy_within(DIM.., 0);
            }
        },
    ),
    ("spot-check", "logits plus 1", "all/logits", |rows| {
        each(rows, |value| value + 1.0);
    }),
    ("spot-check", "logits times 1.01", "all/logits", |rows| {
        each(rows, |value| value * 1.01);
    }),
    ("spot-check", "two tokens exchanged", "all/logits", |rows| {
        vectors(rows, VOCABULARY, |logits| logits.swap(5, 6));
    }),
    (
        "spot-check",
        "logits of the residue after",
        "all/logits",
        |rows| {
            for row in rows {
                row.copy_within(VOCABULARY.., 0);
            }
        },
    ),
    ("spot-check", "all contacts 0.5", "all/contacts", |rows| {
        each(rows, |_| 0.5);
    }),
    (
        "spot-check",
        "contacts of the pair after",
        "all/contacts",
        |rows| {
            maps(rows, |old, i, j| old.at(i + 1, j + 1));
        },
    ),
    (
        "contacts spot-check",
        "the upper half of the contacts",
        "all/contacts",
        |rows| maps(rows, |old, i, j| if i <= j { old.at(i, j) } else { 0.0 }),
    ),
    (
        "contacts spot-check",
        "contacts before the sigmoid",
        "all/contacts",
        |rows| each(rows, |value| (value / (1.0 - value)).ln()),
    ),
    (
        "contacts spot-check",
        "rows of contacts shifted by one",
        "all/contacts",
        |rows| maps(rows, |old, i, j| old.at(i + 1, j)),
    ),
];

#[test]
fn a_second_computation_finds_the_file_whose_vectors_are_of_something_else() {
    let embedded = Embedded::in_f32();
    embedded.embed("int8", "--pool mean,max --dtype int8");
    embedded.embed("all", &format!("{ALL} --windows separate"));
    for (folder, columns, of_exact) in [("f32", 2, true), ("int8", 2, false), ("all", 7, true)] {
        let report = embedded.report(folder, "--spot-check 60", 0);
        assert_eq!(check(&report, "spot-check")["counts"]["rows"], 60);
        let agreement = report["spot_check"].as_array().expect("columns");
        assert_eq!(agreement.len(), columns);
        let differences = agreement.iter().map(|file| file["max_difference"].as_f64());
        let differences = differences.map(|one| one.expect("a number"));
        let largest = differences.fold(0.0, f64::max);
        assert!(
            if of_exact {
                largest == 0.0
            } else {
                largest > 1e-3
            },
            "{folder}: {largest}"
        );
    }
    let planted = |folder: &str, from: &str, columns: &str, change: Change| {
        fs::create_dir(embedded.path("planted")).expect("folder");
        for name in NAMES.map(|name| format!("{name}.parquet")) {
            let of = embedded.path(folder).join(&name);
            fs::copy(of, embedded.path("planted").join(&name)).expect("copy");
        }
        let file = format!("{}.parquet", NAMES[1]);
        let from = embedded.path(from).join(&file);
        plant(&embedded.path("planted").join(file), &from, columns, change);
        let report = embedded.report("planted", "--spot-check 32", 1);
        fs::remove_dir_all(embedded.path("planted")).expect("remove");
        report
    };
    let is_found = |report: &Value, checks: &str, name: &str| {
        let named = check(report, "spot-check")["offenders"].to_string();
        let is_named = named.contains(NAMES[1]) && !named.contains(NAMES[2]);
        if failed(report).join(" ") == checks && is_named {
            None
        } else {
            Some(format!("{name}: {:?}: {named}", failed(report)))
        }
    };
    let narrow = planted("f32", "int8", "", |_| {});
    let mut wrong: Vec<String> = is_found(&narrow, "spot-check", "int8 among f32")
        .into_iter()
        .collect();
    for (checks, name, place, change) in FAULTS {
        let (folder, columns) = place.split_once('/').unwrap_or((place, ""));
        let report = planted(folder, folder, columns, *change);
        wrong.extend(is_found(&report, checks, name));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_sample_of_as_many_rows_as_there_are_has_all_of_them() {
    let embedded = Embedded::in_f32();
    let spot_checked = |sample: u64| {
        let report = embedded.report(
            "f32",
            &format!("--spot-check {sample} --spot-check-seed 3"),
            0,
        );
        let rows = &check(&report, "spot-check")["counts"]["rows"];
        (rows.as_u64(), report["rows"].as_u64())
    };
    let (all, rows) = spot_checked(1 << 20);
    assert_eq!(all, rows);
    assert_eq!(spot_checked(rows.expect("rows")).0, rows);
    // Eight of each of four shards.
    assert_eq!(spot_checked(3).0, Some(32));
}

/// What `recompute` writes for each shard alone is the sample of one run over all.
#[test]
fn shards_that_were_computed_again_one_by_one_are_the_sample_of_all() {
    let embedded = Embedded::in_f32();
    fs::create_dir(embedded.path("again")).expect("folder");
    let recompute_to = |name: &str, model: &str, seed: u32, out: &str| {
        let files = format!("f32/{name}.parquet --shards shards/{name}.parquet --model {model}");
        let files = format!("{files} --manifest shards/manifest.json --out {out}");
        let options = format!("--spot-check 60 --spot-check-seed {seed} --threads 1");
        embedded.command(&format!("validate-embeddings recompute {files} {options}"))
    };
    let recompute = |name: &str, model: &str, seed: u32| {
        recompute_to(name, model, seed, &format!("again/{name}.parquet"))
    };
    for name in NAMES {
        run(&mut recompute(name, "model-tiny", 0));
    }
    let compared = || -> (Option<i32>, Value) {
        let files = "f32 --shards shards --manifest shards/manifest.json --recomputed again";
        let line = format!("validate-embeddings {files} --spot-check 60 --quiet --report -");
        let output = embedded.command(&line).output().expect("run");
        let report = serde_json::from_slice(&output.stdout).expect("a report");
        (output.status.code(), report)
    };
    let (code, report) = compared();
    assert_eq!(code, Some(0));
    assert_eq!(check(&report, "spot-check")["counts"]["rows"], 60);

    // Rows of another choice are no sample.
    run(&mut recompute(NAMES[0], "model-tiny", 1));
    let (code, report) = compared();
    assert_eq!((code, failed(&report)), (Some(1), vec!["spot-check"]));
    let missing = &check(&report, "spot-check")["counts"]["not_computed"];
    assert!(missing.as_u64() > Some(0), "{missing}");

    // What does not belong together is refused, and changes nothing.
    let (model, exists) = ("model-tiny", "exists and is no sample of these shards");
    for (model, out, code, what) in [
        (
            "model-tiny-bin",
            "again/shard-00000.parquet",
            65,
            "expected that of the embeddings",
        ),
        (
            "model-tiny-esmc",
            "again/shard-00000.parquet",
            65,
            "spot check: layer 4 does not exist; expected 0 to 2",
        ),
        (model, "batches/shard-00000.arrow", 73, exists),
        (model, "f32/shard-00001.parquet", 73, exists),
        (model, "again/shard-00001.parquet", 73, exists),
    ] {
        let before = fs::read(embedded.path(out)).expect("a file");
        assert_fails(recompute_to(NAMES[0], model, 0, out), code, what);
        assert!(
            fs::read(embedded.path(out)).expect("a file") == before,
            "{out}"
        );
    }
    for (line, code, what) in [
        (
            "f32 --shards shards --recomputed f32",
            65,
            "expected rows that validate-embeddings recompute has made of these shards",
        ),
        (
            "f32 --model model-tiny",
            2,
            "--model and --recomputed need the shards",
        ),
        ("f32 --shards shards --model none", 66, "none: "),
    ] {
        let command = embedded.command(&format!("validate-embeddings {line}"));
        assert_fails(command, code, what);
    }
}

#[test]
fn embeddings_of_other_shards_or_another_manifest_are_not_computed_again() {
    let embedded = Embedded::in_f32();
    fs::write(embedded.path("other.fasta"), ">A\nMKVLA\n").expect("write");
    embedded.run("fasta-shard other.fasta --out other --shards 1");
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
        let files = format!("f32/shard-00000.parquet --shards {shards} --out again.parquet");
        let options = format!("--manifest {manifest}/manifest.json --model model-tiny");
        let line = format!("validate-embeddings recompute {files} {options}");
        let expected = format!("{shards}: not a shard of ");
        assert_fails(embedded.command(&line), 65, &expected);
        assert_fails(embedded.command(&line), 65, what);
        assert!(!embedded.path("again.parquet").exists());
    }
}

#[test]
fn a_set_without_rows_has_a_sample_without_rows_and_passes_only_where_that_is_expected() {
    for (fasta, cut, said) in [
        (
            format!(">a\n{}\n", "MKV".repeat(40)),
            "--long-policy reject --max-residues 100",
            "every record was rejected, see rejects.csv: 1 too_long",
        ),
        (
            String::new(),
            "--allow-empty",
            "the embeddings have no rows",
        ),
    ] {
        let folder = tempfile::tempdir().expect("temp folder");
        fs::write(folder.path().join("in.fasta"), fasta).expect("write");
        fs::create_dir_all(folder.path().join("set/embeddings")).expect("folder");
        let embeddings = "set/embeddings/none.parquet";
        let files = format!("{embeddings} --shards set/shards/shard-00000.parquet");
        let again = "--manifest set/shards/manifest.json --out again.parquet";
        for text in [
            format!("fasta-shard in.fasta --out set/shards --shards 1 {cut}"),
            "pack-batches set/shards/shard-00000.parquet --out none.arrow".to_owned(),
            format!("gpu-embed none.arrow --out {embeddings} --model model-tiny --device cpu"),
            format!("validate-embeddings recompute {files} {again} --model model-tiny"),
            format!("validate-embeddings recompute {files} {again} --model model-tiny"),
            format!("validate-embeddings {files} --recomputed again.parquet --max-rejected 100%"),
            "validate-embeddings --dataset set --max-rejected 100%".to_owned(),
        ] {
            run(&mut line(folder.path(), &text));
        }
        let output = line(folder.path(), "validate-embeddings --dataset set").output();
        let output = output.expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
}

/// All columns.
const ALL: &str = "--pool mean,max,std,bos --residues --logits --contacts";

/// Rounding changes a value by a share of itself, and logits are far from zero.
#[test]
fn no_type_is_a_fault() {
    let embedded = Embedded::new();
    for (folder, options) in [
        ("a", format!("{ALL} --windows separate --store-dtype f16")),
        (
            "b",
            "--pool mean,max,std,bos --residues --contacts --windows separate --dtype int8 --store-dtype f16".to_owned(),
        ),
        ("c", "--pool mean,max,std,bos --layers all".to_owned()),
        (
            "d",
            "--pool mean,max,std,bos --layers all --dtype int8".to_owned(),
        ),
    ] {
        embedded.embed(folder, &options);
        embedded.report(folder, "--spot-check 60", 0);
    }
}

#[test]
#[ignore = "needs libplmkit_cuda.so: make test GPU=1"]
fn no_type_of_libtorch_is_a_fault() {
    let embedded = Embedded::new();
    for (dtype, store_dtype) in [("f32", "f32"), ("bf16", "f32"), ("f16", "f16")] {
        let types = format!("--kernels libtorch --dtype {dtype} --store-dtype {store_dtype}");
        embedded.embed(dtype, &format!("{ALL} --windows separate {types}"));
        embedded.report(dtype, "--spot-check 60", 0);
    }
}

#[test]
fn a_question_put_wrongly_changes_no_verdict() {
    let embedded = Embedded::in_f32();
    let folder = embedded.path("dataset");
    fs::create_dir(&folder).expect("folder");
    fs::rename(embedded.path("f32"), folder.join("embeddings")).expect("rename");
    fs::rename(embedded.path("shards"), folder.join("shards")).expect("rename");
    let validate = |model: &str, options: &str| {
        let options = format!("--spot-check 8 --threads 1 --quiet {options}");
        let line = format!("validate-embeddings --dataset dataset --model {model} {options}");
        embedded.command(line.trim_end())
    };
    run(&mut validate("model-tiny", ""));
    let verdict = || fs::read(folder.join("dataset.json")).expect("a verdict");
    let passed = verdict();
    for (model, options, code, what) in [
        ("model-tiny-bin", "", 65, "expected that of the embeddings"),
        (
            "model-tiny",
            "--max-rejected 1%%",
            2,
            "expected a share such as 1% or 0.01",
        ),
    ] {
        assert_fails(validate(model, options), code, what);
    }
    assert_eq!(verdict(), passed);

    let combine =
        |out: &str| embedded.command(&format!("query-embeddings combine dataset --out {out}"));

    // A reference that is not met is a verdict: until the next one that passes, the dataset is refused.
    let part = folder.join(format!("embeddings/{}.parquet", NAMES[0]));
    let other = embedded.path("other.parquet");
    fs::copy(&part, &other).expect("copy");
    plant(&other, &part, "", |rows| each(rows, |value| -value));
    let wrong = "--reference other.parquet";
    assert_fails(validate("model-tiny", wrong), 1, "expected at least 0.999");
    assert_ne!(verdict(), passed);
    assert_fails(combine("one"), 65, "its validation failed");
    run(&mut validate("model-tiny", ""));
    assert_eq!(verdict(), passed);
    run(&mut combine("one"));

    // A sample that differs says it.
    let file = folder.join(format!("embeddings/{}.parquet", NAMES[1]));
    let sound = fs::read(&file).expect("embeddings");
    plant(&file, &file, "", |rows| each(rows, |value| 1.01 * value));
    assert_fails(validate("model-tiny", ""), 1, "spot-check");
    assert_fails(combine("two"), 65, "");
    fs::write(&file, sound).expect("restore");
    run(&mut validate("model-tiny", ""));
    assert_eq!(verdict(), passed);
}
