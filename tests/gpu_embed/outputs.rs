//! The columns and types that `gpu-embed` computes, on real proteins with the tiny model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use arrow_select::concat::concat_batches;
use plmkit_contract::{AMINO_ACIDS, KeyColumns, ordinals, tokenize};
use plmkit_esm2::Isa;
use plmkit_store::EmbeddingsReader;
use safetensors::SafeTensors;
use safetensors::tensor::{TensorView, serialize};
use serde_json::Value;

use crate::common::case::rejects;
use crate::common::{self, assert_fails, bin, embed, model_of, pack, run, shard, test_data};
use crate::{EVERY_OUTPUT, assert_has, ends, rows, stderr, validate, validate_shard};

const HIDDEN: usize = 64;

/// The first proteins of the test data, in batches.
pub(crate) struct Case {
    pub(crate) folder: tempfile::TempDir,
}

impl Case {
    pub(crate) fn new() -> Self {
        let text = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
        let some: String = text.split_inclusive('>').take(21).collect();
        Self::of(some.trim_end_matches('>'))
    }

    fn of(fasta: &str) -> Self {
        let case = Self {
            folder: tempfile::tempdir().expect("temp folder"),
        };
        fs::write(case.path("in.fasta"), fasta).expect("write");
        let shards = case.path("shards");
        let shard = shard(&case.path("in.fasta"), &shards, &["--max-residues", "300"]);
        pack(&shard, &case.path("b.arrow"), 1000);
        case
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn embed(&self, model: &Path, out: &str, options: &[&str]) -> Command {
        let mut command = common::embed(&[&self.path("b.arrow")], model, &self.path(out));
        command.args(options);
        command
    }

    /// A run of `validate-embeddings` against the shard.
    fn validate(&self, out: &str) -> Command {
        validate_shard(&self.path(out), &self.path("shards/shard-00000.parquet"))
    }

    /// The vectors `mean_4` of an output by ordinal.
    pub(crate) fn means(&self, out: &str) -> BTreeMap<u64, Vec<f32>> {
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

fn floats(values: &dyn Array) -> Vec<f32> {
    match values.as_primitive_opt::<Float16Type>() {
        Some(halves) => halves.values().iter().map(|half| half.to_f32()).collect(),
        None => values.as_primitive::<Float32Type>().values().to_vec(),
    }
}

/// The lowest cosine of two vectors of the same record.
pub(crate) fn lowest_cosine(a: &BTreeMap<u64, Vec<f32>>, b: &BTreeMap<u64, Vec<f32>>) -> f64 {
    assert!(a.len() == 20 && a.keys().eq(b.keys()));
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b);
        products.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    let cosine = |(a, b): (&Vec<f32>, &Vec<f32>)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    a.values().zip(b.values()).map(cosine).fold(1.0, f64::min)
}

/// model-tiny with changes: `change` gets the name of a tensor and the place of a value, and returns a factor, or `None` to leave out
/// the tensor.
pub(crate) fn changed_model(folder: &Path, change: impl Fn(&str, usize) -> Option<f32>) -> PathBuf {
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
        let view = TensorView::new(*dtype, shape.clone(), bytes);
        (name, view.expect("a tensor"))
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
            let list = |name: &str, row| batch[name].as_list::<i32>().value(row);
            for row in 0..batch.num_rows() {
                for layer in 0..5 {
                    let residues = list(&format!("residues_{layer}"), row);
                    let vectors = floats(residues.as_fixed_size_list().values());
                    let means = batch[format!("mean_{layer}").as_str()].as_fixed_size_list();
                    let mean = floats(&means.value(row));
                    let scale = mean.iter().fold(0f32, |most, value| most.max(value.abs()));
                    for (channel, mean) in mean.into_iter().enumerate() {
                        let own = vectors.iter().skip(channel).step_by(HIDDEN);
                        let sum: f64 = own.map(|&value| f64::from(value)).sum();
                        let expected = sum / residues.len() as f64;
                        assert!((f64::from(mean) - expected).abs() <= close * f64::from(scale));
                    }
                }
                let residues = list("residues_4", row).len();
                let logits = list("logits", row);
                let width = logits.as_fixed_size_list().value_length();
                assert_eq!((logits.len(), width), (residues, 33));
                let contacts = floats(&list("contacts", row));
                assert_eq!(contacts.len(), residues * residues);
                for i in 0..residues {
                    for j in 0..i {
                        let pair = [contacts[i * residues + j], contacts[j * residues + i]];
                        assert!((0.0..=1.0).contains(&pair[0]), "{pair:?}");
                        assert_eq!(pair[0].to_bits(), pair[1].to_bits());
                    }
                }
            }
        }
        run(&mut case.validate(&out));
    }
}

/// The log-probabilities of the twenty amino acids by the logits of a residue, in f64.
fn log_probs(logits: &[f32]) -> Vec<f64> {
    let logits = AMINO_ACIDS.map(|letter| {
        let mut tokens = Vec::new();
        tokenize(&[letter], &mut tokens).expect("a residue");
        f64::from(logits[usize::from(tokens[1])])
    });
    let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.iter().map(|logit| logit - sum.ln()).collect()
}

#[test]
fn scores_are_log_probabilities_of_the_twenty() {
    let long =
        "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKR".repeat(9);
    let proteins = ["M", "MKXUVLA", "XBUZO", &long, "ACDEFGHIKLMNPQRSTVWY"];
    let fasta: Vec<String> = (0..)
        .zip(proteins)
        .map(|(at, residues)| format!(">P{at}\n{residues}\n"))
        .collect();
    let folder = tempfile::tempdir().expect("temp folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("in.fasta"), fasta.concat()).expect("write");
    let windows = [
        "--long-policy",
        "window",
        "--max-residues",
        "300",
        "--overlap",
        "100",
    ];
    let shard = shard(&at("in.fasta"), &at("shards"), &windows);
    // As they are before they are rounded to f16.
    let mut exact: BTreeMap<u64, Vec<f32>> = BTreeMap::new();
    for (budget, dtype, close) in [(400, "f32", 2e-6), (9000, "f32", 2e-6), (9000, "f16", 4e-3)] {
        let batches = at(&format!("{budget}-{dtype}.arrow"));
        pack(&shard, &batches, budget);
        let out = at(&format!("{budget}-{dtype}.parquet"));
        let options = ["--logits", "--scores", "--store-dtype", dtype];
        run(common::embed(&[&batches], &test_data("model-tiny"), &out).args(options));
        let mut found = 0;
        for batch in rows(&out) {
            let likelihoods = batch["log_likelihood"].as_primitive::<Float32Type>();
            let list = |name: &str, row| {
                let residues = batch[name].as_list::<i32>().value(row);
                floats(residues.as_fixed_size_list().values())
            };
            for (row, key) in KeyColumns::new(&batch).rows().enumerate() {
                let residues = proteins[key.ordinal as usize].as_bytes();
                let scores = list("log_probs", row);
                if dtype == "f32" {
                    exact.insert(key.ordinal, list("logits", row));
                }
                let logits = &exact[&key.ordinal];
                assert_eq!(scores.len(), 20 * residues.len());
                let mut own = Vec::new();
                let positions = logits.chunks(33).zip(scores.chunks(20)).zip(residues);
                for ((logits, scores), residue) in positions {
                    let expected = log_probs(logits);
                    for (score, expected) in scores.iter().zip(&expected) {
                        let distance = (f64::from(*score) - expected).abs();
                        assert!(
                            distance < close * expected.abs().max(1.0),
                            "{score} {expected}"
                        );
                    }
                    let place = AMINO_ACIDS.iter().position(|letter| letter == residue);
                    own.extend(place.map(|place| expected[place]));
                }
                if own.is_empty() {
                    assert!(likelihoods.is_null(row), "{}", key.id);
                } else {
                    let mean = own.iter().sum::<f64>() / own.len() as f64;
                    assert!((f64::from(likelihoods.value(row)) - mean).abs() < close * mean.abs());
                }
                found += 1;
            }
        }
        assert_eq!(found, proteins.len());
        let model = test_data("model-tiny");
        run(validate_shard(&out, &shard).arg("--model").arg(model));
    }
    let [few, many] = [400, 9000].map(|budget| rows(&at(&format!("{budget}-f32.parquet"))));
    let joined =
        |batches: &[RecordBatch]| concat_batches(&batches[0].schema(), batches).expect("rows");
    assert!(
        joined(&few) == joined(&many),
        "no score depends on the batch"
    );
}

#[test]
fn no_output_replaces_data_of_another_kind() {
    let case = Case::new();
    let model = test_data("model-tiny");
    let others = [
        ("in.fasta", "a FASTA file"),
        ("shards/shard-00000.parquet", "a shard"),
        ("shards/rejects.csv", "a list of rejects"),
    ];
    for (name, kind) in others {
        let path = case.path(name);
        let before = fs::read(&path).expect("read");
        let out = case.embed(&model, name, &["--force"]);
        assert_fails(out, 73, &format!("is {kind}, which nothing replaces"));
        let mut rejects = case.embed(&model, "e.parquet", &["--force", "--rejects"]);
        assert_fails(rejects.arg(&path), 73, "is no list of gpu-embed");
        assert!(fs::read(&path).expect("read") == before, "{name}");
    }
    assert!(!case.path("e.parquet").exists());
    // A damaged list of its own is replaced.
    let list = "ordinal,id,length,reason,start\n7,a";
    fs::write(case.path("r.csv"), list).expect("write");
    run(case
        .embed(&model, "e.parquet", &["--force", "--rejects"])
        .arg(case.path("r.csv")));
    assert!(!case.path("r.csv").exists(), "nothing was rejected");
}

#[test]
fn a_missing_head_is_named() {
    let case = Case::new();
    let model = changed_model(case.folder.path(), |name, _| {
        (!name.contains("_head.")).then_some(1.0)
    });
    run(&mut case.embed(&model, "pooled.parquet", &[]));
    for (option, what) in [
        (
            "--logits",
            "no language-model head; missing 5 ('lm_head.dense.weight', ",
        ),
        (
            "--contacts",
            "no contact head; missing 2 ('contact_head.regression.weight', ",
        ),
    ] {
        let what = format!("model: has {what}");
        assert_fails(case.embed(&model, "e.parquet", &[option]), 65, &what);
    }
}

#[test]
fn narrow_types_are_close_and_are_other_work() {
    let case = Case::new();
    let model = test_data("model-tiny");
    run(&mut case.embed(&model, "f32.parquet", &[]));
    let expected = case.means("f32.parquet");
    let kernels = [
        ("bf16", "auto"),
        ("bf16", "portable"),
        ("int8", "auto"),
        ("int8", "portable"),
    ];
    let of_this_cpu = [
        ("bf16", "neon_matrix", Isa::NeonMatrix.is_available()),
        ("bf16", "avx512_bf16", Isa::Avx512Bf16.is_available()),
        ("int8", "neon_dot", Isa::NeonDot.is_available()),
        ("int8", "avx_vnni", Isa::AvxVnni.is_available()),
    ];
    let of_this_cpu = of_this_cpu
        .into_iter()
        .filter_map(|(dtype, kernels, has)| has.then_some((dtype, kernels)));
    for (dtype, kernels) in kernels.into_iter().chain(of_this_cpu) {
        let out = format!("{dtype}-{kernels}.parquet");
        run(&mut case.embed(&model, &out, &["--dtype", dtype, "--kernels", kernels]));
        let cosine = lowest_cosine(&case.means(&out), &expected);
        println!("{dtype}, {kernels}: lowest cosine 1 - {:.1e}", 1.0 - cosine);
        let close = (0.9995..1.0).contains(&cosine);
        assert!(close, "{dtype}, {kernels}: {cosine}");
        let f32 = case.embed(&model, &out, &["--dtype", "f32"]);
        assert_fails(f32, 73, "dtype was");
    }
}

#[test]
fn a_type_that_is_not_computed_is_refused() {
    let case = Case::new();
    let model = test_data("model-tiny");
    for (dtype, kernels, what) in [
        ("f16", "auto", "on this CPU; expected f32 or "),
        (
            "f16",
            "portable",
            "by --kernels portable; expected f32 or bf16 or int8",
        ),
        (
            "int8",
            "libtorch",
            "by --kernels libtorch; expected f32 or f16 or bf16 or fp8",
        ),
    ] {
        let options = ["--dtype", dtype, "--kernels", kernels];
        let what = format!("--dtype {dtype}: not computed {what}");
        assert_fails(case.embed(&model, "refused.parquet", &options), 2, &what);
        assert!(!case.path("refused.parquet").exists());
        let mut probe = bin("gpu-embed");
        probe
            .args(["--probe", "--device", "cpu", "--model"])
            .arg(&model);
        probe.args(options);
        assert_fails(probe, 2, &what);
    }
}

#[test]
fn int8_is_measured_on_the_sequences_of_the_run() {
    let case = Case::new();
    let model = test_data("model-tiny");
    let said = run(&mut case.embed(&model, "int8.parquet", &["--dtype", "int8"]));
    assert_has(&said, "int8: over 2 sequences of the run, 256 tokens, ");
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
    run(&mut case.validate("int8.parquet"));
}

/// The same function except for rounding, with one channel before each feed-forward network that dwarfs the others.
pub(crate) fn with_outliers(folder: &Path, factor: f32) -> PathBuf {
    changed_model(folder, |name, i| {
        let norm = name.contains("layer.") && !name.contains("attention");
        Some(if norm && name.contains(".LayerNorm.") && i == 0 {
            factor
        } else if name.ends_with("intermediate.dense.weight") && i % HIDDEN == 0 {
            1.0 / factor
        } else {
            1.0
        })
    })
}

#[test]
fn int8_is_refused_where_it_loses_too_much() {
    let case = Case::new();
    let model = with_outliers(case.folder.path(), 1e4);
    run(&mut case.embed(&model, "f32.parquet", &[]));
    run(&mut case.embed(&test_data("model-tiny"), "unchanged.parquet", &[]));
    let cosine = lowest_cosine(&case.means("f32.parquet"), &case.means("unchanged.parquet"));
    assert!(cosine > 0.999_999, "the same function: {cosine}");
    let int8 = |model: &Path| case.embed(model, "int8.parquet", &["--dtype", "int8"]);
    let what = "model: --dtype int8 is refused: over 2 sequences of the run, 256 tokens, ";
    assert_fails(int8(&model), 65, what);
    assert!(!case.path("int8.parquet").exists());
}

/// The head of the tiny model makes much of small differences: its vectors are near enough, and its logits are not.
#[test]
fn int8_is_refused_where_logits_lose_too_much() {
    let case = Case::new();
    let int8 = |model: &Path| case.embed(model, "logits.parquet", &["--dtype", "int8", "--logits"]);
    let what = "have another most probable one (expected at most 5 %); try --dtype bf16 or f32";
    assert_fails(int8(&test_data("model-tiny")), 65, what);
    assert!(!case.path("logits.parquet").exists());
    let model = changed_model(case.folder.path(), |name, _| {
        let is_head = name.starts_with("lm_head.layer_norm");
        Some(if is_head { 0.002 } else { 1.0 })
    });
    let said = run(&mut int8(&model));
    let text = "; log-probabilities of amino acids differ by ";
    assert_has(&said, text);
    let reader = EmbeddingsReader::open(&case.path("logits.parquet")).expect("open");
    let parity = reader.provenance().parity.clone().expect("it is recorded");
    let logits = &parity["logits"];
    assert_eq!(logits["positions"], 252);
    assert_eq!(logits["mean_difference_limit"], 0.1);
    let mean = logits["mean_difference"].as_f64().expect("a number");
    assert!((1e-4..0.1).contains(&mean), "{mean}");
}

#[test]
fn int8_is_measured_on_sequences_that_f32_computes() {
    // Tryptophan has an embedding whose variance is too large for f32.
    let models = tempfile::tempdir().expect("create");
    let model = changed_model(models.path(), |name, i| {
        let tryptophan = name.ends_with("word_embeddings.weight") && i / HIDDEN == 22;
        Some(if tryptophan { 1e36 } else { 1.0 })
    });
    let case = |has_tryptophan: fn(usize) -> bool| {
        let record = |i: usize| {
            let first = if has_tryptophan(i) { "W" } else { "M" };
            let sequence = &"KTAYIAKQRQISFVKSHFSRQ".repeat(4)[i..];
            format!(">p{i}\n{first}{sequence}\n")
        };
        Case::of(&(0..16).map(record).collect::<String>())
    };
    let int8 = |case: &Case| case.embed(&model, "int8.parquet", &["--dtype", "int8"]);
    let some = case(|i| i % 4 != 3);
    let output = int8(&some).output().expect("run");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let what = "int8: over 2 sequences of the run, 156 tokens, ";
    assert_has(&stderr(&output), what);
    let all = case(|_| true);
    let what = "--dtype int8 is refused: no sampled sequence has finite vectors in f32";
    assert_fails(int8(&all), 65, what);
    assert!(!all.path("int8.parquet").exists());
}

#[test]
fn columns_are_reported_with_shapes_and_only_vectors_are_compared() {
    let case = Case::new();
    let (embeddings, events) = (case.path("e.parquet"), case.path("e.jsonl"));
    let options = "--kernels portable --residues --logits --contacts --events";
    let options: Vec<&str> = options.split(' ').collect();
    let mut embed = case.embed(&test_data("model-tiny"), "e.parquet", &options);
    let said = run(embed.arg(&events));
    let shapes =
        "20 rows of mean_4 (64), residues_4 (L x 64), logits (L x 33), contacts (L x L) from ";
    assert_has(&said, shapes);
    let mut validate = validate(&embeddings);
    validate.arg("--reference").arg(&embeddings);
    let output = validate.args(["--report", "-"]).output().expect("run");
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let what = "warning: reference: not compared: residues_4, logits, contacts; only";
    assert_has(&said, what);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let not_compared = serde_json::json!(["residues_4", "logits", "contacts"]);
    assert_eq!(report["not_compared"], not_compared);
    assert_eq!(report["agreement"][0]["column"], "mean_4");
    // The model of the report is that of the run's first event.
    let events = fs::read_to_string(events).expect("events");
    let run: Value = serde_json::from_str(events.lines().next().expect("a line")).expect("JSON");
    assert!(run["model_digest"].is_string());
    assert_eq!(run["kernel_set"], "portable");
    for entry in ["model", "model_digest"] {
        assert_eq!(report[entry], run[entry], "{entry}");
    }
}

#[test]
fn one_is_counted_in_the_singular() {
    let folder = tempfile::tempdir().expect("temp folder");
    let at = |name: &str| folder.path().join(name);
    let fasta = format!(">one\n{}\n", "MKVLAGTWRN".repeat(20));
    fs::write(at("one.fasta"), fasta).expect("write");
    let mut shard = bin("fasta-shard");
    shard.arg(at("one.fasta")).arg("--out").arg(at("shards"));
    let said = run(shard.args(["--shards", "1", "--max-residues", "100"]));
    for part in [
        "1 record: 1 accepted",
        "1 row, ",
        " in 1 shard (",
        ": 1 protein truncated to 100 residues; ",
    ] {
        assert_has(&said, part);
    }
    let mut pack = bin("pack-batches");
    pack.arg(at("shards/shard-00000.parquet")).arg("--out");
    let said = run(pack.arg(at("b.arrow")));
    assert_has(&said, "1 sequence, 102 tokens in 1 batch, ");
    let embed = |out: &str| common::embed(&[&at("b.arrow")], &test_data("model-tiny"), &at(out));
    let said = run(&mut embed("e.parquet"));
    assert_has(&said, "1 row of mean_4 (64) from 1 batch, ");
    let said = ends(embed("f.parquet").args(["--inject", "not-finite=0"]), 1);
    assert_has(&said, "f.parquet: 1 sequence could not be embedded");
    let said = run(&mut validate(&at("e.parquet")));
    assert_has(
        &said,
        "validate-embeddings: pass: 1 row, 1 truncated; 7 checks passed",
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

#[test]
fn rows_are_in_the_order_of_the_input() {
    let case = Case::new();
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    // More than one section of the packer, and windows of a protein in several batches.
    let copies = (0..6).map(|copy| text.replace('>', &format!(">{copy}-")));
    fs::write(case.path("many.fasta"), copies.collect::<String>()).expect("write");
    let shards = |folder: &str, count: &str, options: &[&str]| {
        let mut shard = bin("fasta-shard");
        shard
            .arg(case.path("many.fasta"))
            .arg("--out")
            .arg(case.path(folder));
        run(shard
            .args(["--max-residues", "300", "--shards", count])
            .args(options));
    };
    shards(
        "windows",
        "1",
        &["--long-policy", "window", "--overlap", "50"],
    );
    shards("two", "2", &[]);
    let packed = |shard: &str| {
        let out = case.path(&shard.replace('/', "-")).with_extension("arrow");
        pack(&case.path(shard), &out, 700);
        out
    };
    let keys = |batches: &[PathBuf], options: &[&str]| -> Vec<(u64, u32)> {
        let out = case.path("ordered.parquet");
        let batches: Vec<&Path> = batches.iter().map(PathBuf::as_path).collect();
        let mut embed = common::embed(&batches, &test_data("model-tiny"), &out);
        run(embed.arg("--force").args(options));
        let rows = rows(&out);
        let keys = rows.iter().flat_map(|rows| {
            let keys = KeyColumns::new(rows);
            keys.rows().map(|key| key.sort_key()).collect::<Vec<_>>()
        });
        keys.collect()
    };
    let windows = [packed("windows/shard-00000.parquet")];
    let stitched = keys(&windows, &[]);
    let all: Vec<(u64, u32)> = (0..stitched.len() as u64).map(|at| (at, 0)).collect();
    assert_eq!(stitched, all);
    // Several row groups of 64 MiB.
    assert_eq!(keys(&windows, &["--residues"]), all);
    let separate = keys(&windows, &["--windows", "separate"]);
    assert!(separate.len() > all.len());
    assert!(separate.is_sorted());
    // Each shard holds about every second protein, so each file has its own order.
    let two = ["two/shard-00000.parquet", "two/shard-00001.parquet"].map(packed);
    let both = keys(&two, &[]);
    let turns = both.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!((both.len(), turns), (all.len(), 1));
}

#[test]
fn truncation_is_reported_by_the_run_and_by_validation() {
    let case = Case::new();
    let said = run(&mut case.embed(&test_data("model-tiny"), "e.parquet", &[]));
    let (mut truncated, mut lost) = (0, 0);
    for rows in rows(&case.path("e.parquet")) {
        truncated += rows["truncated"].as_boolean().true_count();
        let lengths = rows["length"].as_primitive::<UInt32Type>().values();
        let excess = lengths.iter().map(|length| length.saturating_sub(300));
        lost += excess.sum::<u32>();
    }
    assert!(truncated > 1);
    let expected = format!("; truncated: {truncated} proteins\n");
    assert!(said.ends_with(&expected), "{said}");
    let report = case.path("report.json");
    let mut validate = case.validate("e.parquet");
    validate
        .arg("--manifest")
        .arg(case.path("shards/manifest.json"));
    let said = run(validate.arg("--report").arg(&report));
    let expected = format!(", {truncated} truncated by {lost} residues; ");
    assert_has(&said, &expected);
    let report = fs::read_to_string(report).expect("report");
    assert_has(&report, &format!("\"residues_truncated\": {lost},"));
}

#[test]
fn contacts_that_no_row_holds_are_rejected_and_no_other_sequence() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = |name: &str| folder.path().join(name);
    let long = "MKVLAGTWYQ".repeat(2400);
    let fasta = format!(">a\n{long}\n>b\nMKVL\n>c\n{long}AA\n");
    fs::write(path("in.fasta"), fasta).expect("write");
    let shard = shard(
        &path("in.fasta"),
        &path("shards"),
        &["--max-residues", "30000"],
    );
    pack(&shard, &path("b.arrow"), 65536);
    let mut embed = embed(
        &[&path("b.arrow")],
        &test_data("model-tiny"),
        &path("e.parquet"),
    );
    ends(embed.arg("--contacts"), 1);
    let expected = [0, 2].map(|ordinal| (ordinal, "out_of_memory".to_owned()));
    assert_eq!(rejects(&path("e.rejects.csv")), expected);
    let rows = rows(&path("e.parquet"));
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}
