//! What `gpu-embed` can compute, and in which types: the real binary on real proteins and the tiny model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::EVERY_OUTPUT;
use crate::common::{
    self, assert_failed, assert_fails, bin, model_of, pack, run, shard, test_data,
};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float16Type, Float32Type, UInt32Type};
use plmkit_contract::ordinals;
use plmkit_store::EmbeddingsReader;
use safetensors::SafeTensors;
use safetensors::tensor::{TensorView, serialize};

const HIDDEN: usize = 64;

/// The first proteins of the test data, in batches.
struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let case = Self {
            folder: tempfile::tempdir().expect("temp folder"),
        };
        let text = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
        let some: String = text.split_inclusive('>').take(21).collect();
        fs::write(case.path("in.fasta"), some.trim_end_matches('>')).expect("write");
        let shards = case.path("shards");
        let shard = shard(&case.path("in.fasta"), &shards, &["--max-residues", "300"]);
        pack(&shard, &case.path("b.arrow"), 1000);
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn embed(&self, model: &Path, out: &str, options: &[&str]) -> Command {
        let mut command = common::embed(&[&self.path("b.arrow")], model, &self.path(out));
        command.args(options);
        command
    }

    /// The rows of an output, and its vectors `mean_4` by ordinal.
    fn means(&self, out: &str) -> BTreeMap<u64, Vec<f32>> {
        let mut means = BTreeMap::new();
        for batch in rows(&self.path(out)) {
            let ordinals = ordinals(&batch);
            let vectors = batch["mean_4"].as_fixed_size_list();
            for (row, &ordinal) in ordinals.iter().enumerate() {
                means.insert(ordinal, floats(&vectors.value(row)));
            }
        }
        means
    }
}

fn rows(path: &Path) -> Vec<RecordBatch> {
    let mut reader = EmbeddingsReader::open(path).expect("open");
    std::iter::from_fn(|| reader.next_batch().expect("verified")).collect()
}

fn floats(values: &dyn Array) -> Vec<f32> {
    match values.as_primitive_opt::<Float16Type>() {
        Some(halves) => halves.values().iter().map(|half| half.to_f32()).collect(),
        None => values.as_primitive::<Float32Type>().values().to_vec(),
    }
}

/// The lowest cosine between vectors of the same record.
fn lowest_cosine(a: &BTreeMap<u64, Vec<f32>>, b: &BTreeMap<u64, Vec<f32>>) -> f64 {
    assert!(a.len() == 20 && a.keys().eq(b.keys()));
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b);
        products.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    let cosine = |(a, b): (&Vec<f32>, &Vec<f32>)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    a.values().zip(b.values()).map(cosine).fold(1.0, f64::min)
}

/// model-tiny with tensors left out or values multiplied: `change` says by what, given the tensor and the value's place.
fn changed_model(folder: &Path, change: impl Fn(&str, usize) -> Option<f32>) -> PathBuf {
    let bytes = fs::read(test_data("model-tiny/model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let tensors: Vec<_> = tensors
        .iter()
        .filter(|(name, _)| change(name, 0).is_some())
        .map(|(name, view)| {
            let values = view.data().chunks_exact(4);
            let values = values.map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes")));
            let bytes: Vec<u8> = values
                .enumerate()
                .flat_map(|(i, value)| (value * change(name, i).unwrap_or(1.0)).to_le_bytes())
                .collect();
            (name, view.dtype(), view.shape().to_vec(), bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (
            name,
            TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor"),
        )
    });
    model_of(folder, "model", &serialize(views, None).expect("bytes"))
}

#[test]
fn every_kind_of_output_fits_the_others() {
    let case = Case::new();
    for (dtype, close) in [("f32", 2e-5), ("f16", 2e-3)] {
        let out = format!("{dtype}.parquet");
        let options = [&EVERY_OUTPUT[..], &["--store-dtype", dtype]].concat();
        run(&mut case.embed(&test_data("model-tiny"), &out, &options));
        for batch in rows(&case.path(&out)) {
            assert_eq!(batch.num_columns(), 6 + 5 + 5 + 2);
            for row in 0..batch.num_rows() {
                for layer in 0..5 {
                    let residues = batch[format!("residues_{layer}").as_str()]
                        .as_list::<i32>()
                        .value(row);
                    let vectors = floats(residues.as_fixed_size_list().values());
                    let mean = floats(
                        &batch[format!("mean_{layer}").as_str()]
                            .as_fixed_size_list()
                            .value(row),
                    );
                    let scale = mean.iter().fold(0f32, |most, value| most.max(value.abs()));
                    for (channel, mean) in mean.into_iter().enumerate() {
                        let own = vectors.iter().skip(channel).step_by(HIDDEN);
                        let sum: f64 = own.map(|&value| f64::from(value)).sum();
                        let expected = sum / residues.len() as f64;
                        assert!((f64::from(mean) - expected).abs() <= close * f64::from(scale));
                    }
                }
                let residues = batch["residues_4"].as_list::<i32>().value_length(row) as usize;
                let logits = batch["logits"].as_list::<i32>().value(row);
                assert_eq!(
                    (logits.len(), logits.as_fixed_size_list().value_length()),
                    (residues, 33)
                );
                let contacts = floats(&batch["contacts"].as_list::<i32>().value(row));
                assert_eq!(contacts.len(), residues * residues);
                for i in 0..residues {
                    for j in 0..i {
                        let (here, there) =
                            (contacts[i * residues + j], contacts[j * residues + i]);
                        assert!(
                            (0.0..=1.0).contains(&here) && here.to_bits() == there.to_bits(),
                            "{here} {there}"
                        );
                    }
                }
            }
        }
        run(bin("validate-embeddings")
            .arg(case.path(&out))
            .arg("--shards")
            .arg(case.path("shards/shard-00000.parquet")));
    }
}

#[test]
fn a_head_that_is_not_there_is_missed_by_name() {
    let case = Case::new();
    let model = changed_model(case.folder.path(), |name, _| {
        (!name.contains("_head.")).then_some(1.0)
    });
    run(&mut case.embed(&model, "pooled.parquet", &[]));
    let output = case.embed(&model, "logits.parquet", &["--logits"]).output();
    let what = "model: has no language-model head; missing 5 ('lm_head.dense.weight', ";
    assert_failed(&output.expect("run"), 65, what);
    let output = case
        .embed(&model, "contacts.parquet", &["--contacts"])
        .output();
    let what = "model: has no contact head; missing 2 ('contact_head.regression.weight', ";
    assert_failed(&output.expect("run"), 65, what);
}

#[test]
fn narrow_types_are_close_and_are_other_work() {
    let case = Case::new();
    let model = test_data("model-tiny");
    run(&mut case.embed(&model, "f32.parquet", &[]));
    let expected = case.means("f32.parquet");
    let own = plmkit_esm2::Isa::best().has_bf16();
    let kernels = [
        ("bf16", 0.9995, "libtorch"),
        ("f16", 0.99999, "libtorch"),
        ("int8", 0.9995, "auto"),
        ("int8", 0.9995, "portable"),
    ];
    for (dtype, least, kernels) in kernels
        .into_iter()
        .chain(own.then_some(("bf16", 0.9995, "auto")))
    {
        let out = format!("{dtype}-{kernels}.parquet");
        run(&mut case.embed(&model, &out, &["--dtype", dtype, "--kernels", kernels]));
        let cosine = lowest_cosine(&case.means(&out), &expected);
        println!("{dtype}, {kernels}: lowest cosine 1 - {:.1e}", 1.0 - cosine);
        assert!(cosine >= least && cosine < 1.0, "{dtype}: {cosine}");
        assert_fails(
            case.embed(&model, &out, &["--dtype", "f32"]),
            73,
            "dtype was",
        );
    }
}

#[test]
fn a_type_that_the_cpu_does_not_multiply_is_widened_and_said() {
    let case = Case::new();
    let model = test_data("model-tiny");
    run(&mut case.embed(&model, "f32.parquet", &[]));
    for (dtype, kernels) in [("f16", "auto"), ("f16", "portable"), ("bf16", "portable")] {
        let out = format!("{dtype}-{kernels}.parquet");
        let options = ["--dtype", dtype, "--kernels", kernels];
        let said = run(&mut case.embed(&model, &out, &options));
        let what = format!("this CPU has no instructions for {dtype}: weights are widened");
        assert!(said.contains(&what), "{said}");
        // The same work as in f32, by its provenance, too.
        let said = run(&mut case.embed(&model, &out, &["--dtype", "f32"]));
        assert!(said.contains("already complete"), "{said}");
    }
}

#[test]
fn what_overflows_in_f16_is_computed_again_in_f32() {
    let case = Case::new();
    // The same function but for rounding, with values in between that f16 does not reach.
    let model = changed_model(case.folder.path(), |name, _| {
        Some(if name.contains("layer.1.attention.self.value") {
            1e5
        } else if name.contains("layer.1.attention.output.dense.weight") {
            1e-5
        } else {
            1.0
        })
    });
    run(&mut case.embed(&model, "f32.parquet", &[]));
    let f16 = ["--dtype", "f16", "--kernels", "libtorch"];
    let said = run(&mut case.embed(&model, "f16.parquet", &f16));
    assert!(said.contains("20 sequences again in f32"), "{said}");
    let cosine = lowest_cosine(&case.means("f16.parquet"), &case.means("f32.parquet"));
    assert!(cosine > 0.999, "{cosine}");
    let said = run(&mut case.embed(&model, "bf16.parquet", &["--dtype", "bf16"]));
    assert!(!said.contains("again"), "{said}");
}

#[test]
fn int8_is_measured_on_the_sequences_of_the_run() {
    let case = Case::new();
    let model = test_data("model-tiny");
    let said = run(&mut case.embed(&model, "int8.parquet", &["--dtype", "int8"]));
    let cosine = "int8: over 2 sequences of the run, 256 tokens, ";
    assert!(said.contains(cosine), "{said}");
    let reader = EmbeddingsReader::open(&case.path("int8.parquet")).expect("open");
    let parity = reader.provenance().parity.clone().expect("it is recorded");
    assert_eq!(parity["sequences"], 2);
    assert_eq!(parity["tokens"], 256);
    assert_eq!(parity["mean_cosine_floor"], 0.999);
    assert_eq!(parity["residue_cosine_floor"], 0.98);
    for name in ["mean_cosine", "residue_cosine"] {
        let cosine = parity[name].as_f64().expect("a number");
        assert!((0.98..1.0).contains(&cosine), "{name}: {cosine}");
    }
    let embedded = ["int8.parquet", "--shards", "shards/shard-00000.parquet"];
    run(bin("validate-embeddings")
        .current_dir(case.folder.path())
        .args(embedded));
}

#[test]
fn int8_is_refused_where_it_loses_too_much() {
    let case = Case::new();
    // The same function, but for rounding, with one channel in front of each feed-forward network that leaves no digits to
    // the others.
    let model = changed_model(case.folder.path(), |name, i| {
        let norm = name.contains("layer.") && !name.contains("attention");
        let outlier = if norm && name.contains(".LayerNorm.") && i == 0 {
            1e4
        } else if name.ends_with("intermediate.dense.weight") && i % HIDDEN == 0 {
            1e-4
        } else {
            1.0
        };
        Some(outlier)
    });
    run(&mut case.embed(&model, "f32.parquet", &[]));
    run(&mut case.embed(&test_data("model-tiny"), "unchanged.parquet", &[]));
    let cosine = lowest_cosine(&case.means("f32.parquet"), &case.means("unchanged.parquet"));
    assert!(cosine > 0.999_999, "the same function: {cosine}");
    let output = case
        .embed(&model, "int8.parquet", &["--dtype", "int8"])
        .output();
    let what = "model: --dtype int8 is refused: over 2 sequences of the run, 256 tokens, ";
    assert_failed(&output.expect("run"), 65, what);
    assert!(!case.path("int8.parquet").exists());
    let with_libtorch = ["--dtype", "int8", "--kernels", "libtorch"];
    assert_fails(
        case.embed(&model, "int8.parquet", &with_libtorch),
        2,
        "--dtype int8: needs plmkit's own kernels",
    );
}

#[test]
fn columns_are_told_with_their_shapes_and_those_of_several_vectors_are_not_compared() {
    let case = Case::new();
    let events = case.path("e.jsonl");
    let options = [
        "--residues",
        "--logits",
        "--contacts",
        "--events",
        events.to_str().expect("text"),
    ];
    let said = run(&mut case.embed(&test_data("model-tiny"), "e.parquet", &options));
    let shapes =
        "20 rows of mean_4 (64), residues_4 (L x 64), logits (L x 33), contacts (L x L) from ";
    assert!(said.contains(shapes), "{said}");
    let embeddings = case.path("e.parquet");
    let mut validate = bin("validate-embeddings");
    validate
        .arg(&embeddings)
        .arg("--reference")
        .arg(&embeddings);
    let output = validate.args(["--report", "-"]).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told = "warning: reference: not compared: residues_4, logits, contacts; only";
    assert!(said.contains(told), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let not_compared = &report["not_compared"];
    assert_eq!(
        not_compared,
        &serde_json::json!(["residues_4", "logits", "contacts"])
    );
    assert_eq!(report["agreement"][0]["column"], "mean_4");
    // That of the run's first event.
    let events = std::fs::read_to_string(case.path("e.jsonl")).expect("events");
    let run: serde_json::Value =
        serde_json::from_str(events.lines().next().expect("a line")).expect("JSON");
    assert!(run["model_digest"].is_string());
    for entry in ["model", "model_digest"] {
        assert_eq!(report[entry], run[entry], "{entry}");
    }
}

#[test]
fn one_is_counted_in_the_singular() {
    let folder = tempfile::tempdir().expect("temp folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(
        at("one.fasta"),
        format!(">one\n{}\n", "MKVLAGTWRN".repeat(20)),
    )
    .expect("write");
    let mut shard = bin("fasta-shard");
    shard.arg(at("one.fasta")).arg("--out").arg(at("shards"));
    let said = run(shard.args(["--shards", "1", "--max-residues", "100"]));
    for told in [
        "1 record: 1 accepted",
        "1 row, ",
        " in 1 shard (",
        ": 1 protein truncated to 100 residues; ",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let mut pack = bin("pack-batches");
    pack.arg(at("shards/shard-00000.parquet")).arg("--out");
    let said = run(pack.arg(at("b.arrow")));
    assert!(
        said.contains("1 sequence, 102 tokens in 1 batch, "),
        "{said}"
    );
    let embed = |out: &str, options: &[&str]| {
        let mut embed = bin("gpu-embed");
        embed
            .arg(at("b.arrow"))
            .arg("--model")
            .arg(test_data("model-tiny"));
        embed.args(["--device", "cpu", "--out"]).arg(at(out));
        embed.args(options).output().expect("run")
    };
    let said = String::from_utf8_lossy(&embed("e.parquet", &[]).stderr).into_owned();
    assert!(
        said.contains("1 row of mean_4 (64) from 1 batch, "),
        "{said}"
    );
    let lost = embed("f.parquet", &["--inject", "not-finite=0"]);
    let said = String::from_utf8_lossy(&lost.stderr);
    assert!(
        said.contains("f.parquet: 1 sequence could not be embedded"),
        "{said}"
    );
    let mut validate = bin("validate-embeddings");
    let said = run(validate.arg(at("e.parquet")));
    assert!(
        said.contains("validate-embeddings: 1 row, 1 truncated; passed"),
        "{said}"
    );
}

#[test]
fn every_output_is_the_same_at_any_thread_count() {
    let case = Case::new();
    let model = test_data("model-tiny");
    let bytes = ["1", "2", "5"].map(|threads| {
        let out = format!("{threads}.parquet");
        let options = [&EVERY_OUTPUT[..], &["--threads", threads]].concat();
        run(&mut case.embed(&model, &out, &options));
        fs::read(case.path(&out)).expect("output")
    });
    assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
}

/// Ordinal and start of each row.
fn keys(path: &Path) -> Vec<(u64, u32)> {
    let mut reader = EmbeddingsReader::open(path).expect("embeddings");
    let mut keys = Vec::new();
    while let Some(rows) = reader.next_batch().expect("rows") {
        let ordinals = ordinals(&rows);
        let starts = rows["start"].as_primitive::<UInt32Type>().values();
        keys.extend(ordinals.iter().copied().zip(starts.iter().copied()));
    }
    keys
}

#[test]
fn rows_are_in_the_order_of_the_input() {
    let case = Case::new();
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    // More than one section of the packer, and windows of a protein in several batches.
    let copies = (0..6).map(|copy| text.replace('>', &format!(">{copy}-")));
    fs::write(case.path("many.fasta"), copies.collect::<String>()).expect("write");
    let shard = |folder: &str, options: &[&str]| {
        run(bin("fasta-shard")
            .arg(case.path("many.fasta"))
            .arg("--out")
            .arg(case.path(folder))
            .args(options));
    };
    let common = ["--max-residues", "300", "--shards"];
    shard(
        "windows",
        &[
            &common[..],
            &["1", "--long-policy", "window", "--overlap", "50"],
        ]
        .concat(),
    );
    shard("two", &[&common[..], &["2"]].concat());
    let packed = |shard: &str| {
        let out = case.path(&shard.replace('/', "-")).with_extension("arrow");
        run(bin("pack-batches")
            .arg(case.path(shard))
            .arg("--out")
            .arg(&out)
            .args(["--max-batch-tokens", "700"]));
        out
    };
    let embedded = |batches: &[PathBuf], options: &[&str]| {
        let out = case.path("ordered.parquet");
        run(bin("gpu-embed")
            .args(batches)
            .arg("--model")
            .arg(test_data("model-tiny"))
            .arg("--out")
            .arg(&out)
            .args(["--force", "--device", "cpu", "--progress", "none"])
            .args(options));
        keys(&out)
    };
    let windows = [packed("windows/shard-00000.parquet")];
    let stitched = embedded(&windows, &[]);
    let all: Vec<(u64, u32)> = (0..stitched.len() as u64).map(|at| (at, 0)).collect();
    assert_eq!(stitched, all);
    // Row groups of 64 MiB, several of them.
    assert_eq!(embedded(&windows, &["--residues"]), all);
    let separate = embedded(&windows, &["--windows", "separate"]);
    assert!(separate.len() > all.len());
    assert!(separate.is_sorted());
    // Each shard holds about every second protein: each file has its own order.
    let two = ["two/shard-00000.parquet", "two/shard-00001.parquet"].map(packed);
    let both = embedded(&two, &[]);
    let turns = both.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!((both.len(), turns), (all.len(), 1));
}

#[test]
fn what_was_cut_off_is_said_at_every_end() {
    let case = Case::new();
    let said = run(&mut case.embed(&test_data("model-tiny"), "e.parquet", &[]));
    let mut reader = EmbeddingsReader::open(&case.path("e.parquet")).expect("embeddings");
    let mut truncated = 0;
    let mut lost = 0;
    while let Some(rows) = reader.next_batch().expect("rows") {
        let cut = rows["truncated"].as_boolean();
        truncated += cut.true_count();
        let lengths = rows["length"].as_primitive::<UInt32Type>().values();
        lost += lengths
            .iter()
            .map(|&length| length.saturating_sub(300))
            .sum::<u32>();
    }
    assert!(truncated > 1);
    let expected = format!("; truncated: {truncated} proteins\n");
    assert!(said.ends_with(&expected), "{said}");
    let report = case.path("report.json");
    let said = run(bin("validate-embeddings")
        .arg(case.path("e.parquet"))
        .arg("--shards")
        .arg(case.path("shards/shard-00000.parquet"))
        .arg("--manifest")
        .arg(case.path("shards/manifest.json"))
        .arg("--report")
        .arg(&report));
    let expected = format!(", {truncated} truncated by {lost} residues; passed: ");
    assert!(said.contains(&expected), "{said}");
    let report = fs::read_to_string(report).expect("report");
    assert!(
        report.contains(&format!("\"residues_truncated\": {lost},")),
        "{report}"
    );
}
