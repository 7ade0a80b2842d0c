//! `gpu-embed`, the real binary on real proteins and the tiny model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow::array::{AsArray, ListArray, RecordBatch, UInt8Array};
use arrow::datatypes::UInt8Type;
use plmkit_contract::{Labels, Stop, batches_schema};
use plmkit_store::{BatchesFile, BatchesWriter};

use crate::common::{self, assert_fails, bin, run, test_data, visible};

/// Packed batches of the test proteins.
fn batches(folder: &Path, budget: u32) -> PathBuf {
    let out = folder.join(format!("packed-{budget}.arrow"));
    let shards = folder.join("shards");
    let shard = if shards.exists() {
        shards.join("shard-00000.parquet")
    } else {
        common::shard(&test_data("proteins.fasta"), &shards, &[])
    };
    common::pack(&shard, &out, budget);
    out
}

fn embed(batches: &Path, out: &Path) -> Command {
    common::embed(&[batches], &test_data("model-tiny"), out)
}

/// A copy of the tiny model whose files a test may spoil.
fn model_copy(folder: &Path) -> PathBuf {
    let copy = folder.join("model");
    fs::create_dir(&copy).expect("folder");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(test_data("model-tiny").join(name), copy.join(name)).expect("copy");
    }
    copy
}

#[test]
fn the_same_vector_in_any_company_and_at_any_thread_count() {
    let folder = tempfile::tempdir().expect("temp folder");
    let reference = folder.path().join("reference.parquet");
    run(embed(&batches(folder.path(), 16384), &reference).args([
        "--threads",
        "1",
        "--pool",
        "mean,max,std,bos",
        "--layers",
        "0,2,4",
    ]));
    for (budget, threads) in [(16384, "2"), (1500, "1"), (40, "2")] {
        let other = folder.path().join(format!("{budget}-{threads}.parquet"));
        run(embed(&batches(folder.path(), budget), &other).args([
            "--threads",
            threads,
            "--pool",
            "mean,max,std,bos",
            "--layers",
            "0,2,4",
        ]));
        let report = folder.path().join("report.json");
        run(bin("validate-embeddings")
            .arg(&other)
            .arg("--reference")
            .arg(&reference)
            .args(["--min-cosine", "0.999999", "--report"])
            .arg(&report));
    }
}

#[test]
fn a_finished_run_is_verified_and_left_alone() {
    let folder = tempfile::tempdir().expect("temp folder");
    let (batches, out) = (
        batches(folder.path(), 16384),
        folder.path().join("e.parquet"),
    );
    run(&mut embed(&batches, &out));
    let (bytes, modified) = (fs::read(&out).expect("read"), modified(&out));

    let again = run(&mut embed(&batches, &out));
    assert!(again.contains("already complete"), "{again}");
    assert_eq!(self::modified(&out), modified);

    assert_fails(
        embed(&batches, &out).args(["--pool", "max"]),
        73,
        "columns was [\"mean_4\"] and is now [\"max_4\"]",
    );
    assert!(
        fs::read(&out).expect("read") == bytes,
        "a refused run leaves the output"
    );

    run(embed(&batches, &out).args(["--pool", "max", "--force"]));
    run(embed(&batches, &out).arg("--force"));
    assert!(
        fs::read(&out).expect("read") == bytes,
        "the same work gives the same bytes"
    );
}

fn modified(path: &Path) -> std::time::SystemTime {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .expect("modified")
}

#[test]
fn a_damaged_output_is_not_taken_for_a_finished_one() {
    let folder = tempfile::tempdir().expect("temp folder");
    let (batches, out) = (
        batches(folder.path(), 16384),
        folder.path().join("e.parquet"),
    );
    run(&mut embed(&batches, &out));
    let mut bytes = fs::read(&out).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&out, &bytes).expect("write");
    assert_fails(embed(&batches, &out), 65, "--force replaces it");
}

#[test]
fn no_output_destroys_an_input_or_another_output() {
    let folder = tempfile::tempdir().expect("temp folder");
    let batches = batches(folder.path(), 16384);
    let model = model_copy(folder.path());
    let out = folder.path().join("e.parquet");
    for (out, args, what) in [
        (
            &batches,
            vec![],
            "--out and a batches file are the same file",
        ),
        (
            &model.join("model.safetensors"),
            vec![],
            "--out and a file of the model are the same file",
        ),
        (
            &out,
            vec!["--events", "e.parquet"],
            "--events and --out are the same file",
        ),
        (
            &out,
            vec!["--rejects", "./e.parquet"],
            "--rejects and --out are the same file",
        ),
    ] {
        let mut command = bin("gpu-embed");
        command
            .current_dir(folder.path())
            .arg(&batches)
            .arg("--out")
            .arg(out)
            .arg("--model")
            .arg(&model)
            .arg("--force")
            .args(args);
        assert_fails(command, 2, what);
    }
}

#[test]
fn a_pointer_of_git_lfs_is_named_and_how_the_file_is_fetched() {
    let folder = tempfile::tempdir().expect("temp folder");
    let at = |name: &str| folder.path().join(name);
    let good = batches(folder.path(), 16384);
    let oid = "0".repeat(64);
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 99\n");
    let model = |weights: &str, spoilt: &str| {
        let model = at(&format!("of-{spoilt}"));
        fs::create_dir(&model).expect("folder");
        for name in ["config.json", "model.safetensors"] {
            fs::copy(test_data("model-tiny").join(name), model.join(name)).expect("copy");
        }
        fs::rename(model.join("model.safetensors"), model.join(weights)).expect("rename");
        fs::write(model.join(spoilt), &pointer).expect("write");
        model
    };
    let of_weights = model("model.safetensors", "model.safetensors");
    let of_pickle = model("pytorch_model.bin", "pytorch_model.bin");
    let of_config = model("model.safetensors", "config.json");
    fs::write(at("pointer"), &pointer).expect("write");
    let refused = |command: &mut Command, name: &str| {
        let what = format!(
            "{name}: cannot open: expected the file itself, found a Git LFS pointer to it; git lfs pull fetches the file"
        );
        assert_fails(command, 66, &what);
    };
    for (model, name) in [
        (of_weights, "model.safetensors"),
        (of_pickle, "pytorch_model.bin"),
        (of_config, "config.json"),
    ] {
        let mut embed = bin("gpu-embed");
        embed.arg(&good).arg("--model").arg(&model);
        embed
            .args(["--device", "cpu", "--out"])
            .arg(at("e.parquet"));
        refused(&mut embed, name);
    }
    let mut shard = bin("fasta-shard");
    shard.arg(at("pointer")).args(["--shards", "1", "--out"]);
    refused(shard.arg(at("of-pointer")), "pointer");
    let mut pack = bin("pack-batches");
    pack.arg(at("pointer")).arg("--out").arg(at("p.arrow"));
    refused(&mut pack, "pointer");
    refused(&mut embed(&at("pointer"), &at("e.parquet")), "pointer");
    refused(bin("validate-embeddings").arg(at("pointer")), "pointer");
    let mut report = bin("monitor-log");
    report.args(["report", "--out"]).arg(at("r.json"));
    refused(report.arg("--events").arg(at("pointer")), "pointer");
}

#[test]
fn inputs_that_are_not_batches() {
    let folder = tempfile::tempdir().expect("temp folder");
    let out = folder.path().join("e.parquet");
    let good = batches(folder.path(), 16384);
    let refused = |input: &Path, code: i32, what: &str| {
        assert_fails(embed(input, &out), code, what);
        assert!(!out.exists());
    };
    refused(
        &folder.path().join("absent.arrow"),
        66,
        "absent.arrow: cannot open",
    );
    let shards = folder.path().join("shards");
    refused(&shards, 66, "expected files named *.arrow in this folder");
    refused(
        &folder.path().join("shards/shard-00000.parquet"),
        65,
        "expected a batches file, found a shard; pack-batches makes batches files",
    );
    refused(
        &test_data("proteins.fasta"),
        65,
        "expected a batches file, found a FASTA file; pack-batches makes batches files",
    );
    refused(
        &test_data("make_proteins.py"),
        65,
        "not a readable Arrow IPC file",
    );

    let whole = fs::read(&good).expect("read");
    let spoiled = folder.path().join("spoiled.arrow");
    fs::write(&spoiled, &whole[..whole.len() / 2]).expect("write");
    refused(&spoiled, 65, "spoiled.arrow: not a readable Arrow IPC file");
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(&spoiled, &flipped).expect("write");
    refused(&spoiled, 65, "spoiled.arrow: ");
    fs::write(&spoiled, "").expect("write");
    refused(&spoiled, 65, "it has 0 bytes");
}

#[test]
fn model_folders_that_cannot_be_used() {
    let folder = tempfile::tempdir().expect("temp folder");
    let out = folder.path().join("e.parquet");
    let batches = batches(folder.path(), 16384);
    let refused = |model: &Path, code: i32, what: &str| {
        assert_fails(
            bin("gpu-embed")
                .arg(&batches)
                .arg("--out")
                .arg(&out)
                .arg("--model")
                .arg(model),
            code,
            what,
        );
        assert!(!out.exists());
    };
    refused(&folder.path().join("absent"), 66, "absent");

    let model = model_copy(folder.path());
    let weights = model.join("model.safetensors");
    let whole = fs::read(&weights).expect("read");
    fs::remove_file(&weights).expect("remove");
    refused(&model, 66, "model.safetensors");
    fs::write(&weights, &whole[..whole.len() - 100]).expect("write");
    refused(&model, 65, "model.safetensors");
    fs::write(&weights, &whole[..20]).expect("write");
    refused(&model, 65, "model.safetensors");
    fs::write(&weights, &whole).expect("write");

    let config = fs::read_to_string(model.join("config.json")).expect("read");
    let wide = config.replace("\"intermediate_size\": 256", "\"intermediate_size\": 512");
    assert_ne!(config, wide);
    fs::write(model.join("config.json"), wide).expect("write");
    refused(&model, 65, "512");
    fs::write(model.join("config.json"), "{").expect("write");
    refused(&model, 65, "config.json");
    fs::remove_file(model.join("config.json")).expect("remove");
    refused(&model, 66, "config.json");
}

#[test]
fn layers_that_the_model_does_not_have() {
    let folder = tempfile::tempdir().expect("temp folder");
    let out = folder.path().join("e.parquet");
    assert_fails(
        embed(&batches(folder.path(), 16384), &out).args(["--layers", "5"]),
        2,
        "layer 5 does not exist",
    );
    assert_eq!(visible(folder.path()), ["packed-16384.arrow", "shards"]);
}

#[test]
fn a_gpu_that_is_not_there() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        eprintln!("SKIPPED: this machine has an NVIDIA driver");
        return;
    }
    let folder = tempfile::tempdir().expect("temp folder");
    let out = folder.path().join("e.parquet");
    let batches = batches(folder.path(), 16384);
    assert_fails(
        bin("gpu-embed")
            .arg(batches)
            .arg("--out")
            .arg(&out)
            .arg("--model")
            .arg(test_data("model-tiny"))
            .args(["--device", "cuda"]),
        69,
        "NVIDIA driver",
    );
    assert!(!out.exists());
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = tempfile::tempdir().expect("temp folder");
    let batches = batches(folder.path(), 16384);
    let nowhere = folder.path().join("no/e.parquet");
    assert_fails(embed(&batches, &nowhere), 73, "cannot create");
    assert_fails(embed(&batches, folder.path()), 73, "is a directory");

    let Some(small) = common::SmallDisk::mount(16) else {
        return;
    };
    let out = small.path().join("e.parquet");
    // Vectors of all layers of all proteins are more than 16 KiB however they are compressed.
    assert_fails(
        embed(&batches, &out).args(["--layers", "0,1,2,3,4", "--pool", "mean,max,std,bos"]),
        74,
        "no space left on device",
    );
    assert_eq!(common::all(small.path()), Vec::<String>::new());
}

#[test]
fn an_empty_shard_gives_an_empty_output() {
    let folder = tempfile::tempdir().expect("temp folder");
    let fasta = folder.path().join("one.fasta");
    fs::write(&fasta, ">a\nMK\n").expect("write");
    let shards = folder.path().join("shards");
    run(bin("fasta-shard")
        .arg(&fasta)
        .arg("--out")
        .arg(&shards)
        .args(["--shards", "2"]));
    let packed = folder.path().join("b.arrow");
    run(bin("pack-batches")
        .arg(shards.join("shard-00001.parquet"))
        .arg("--out")
        .arg(&packed));
    let out = folder.path().join("e.parquet");
    for dtype in ["f32", "int8"] {
        let summary = run(embed(&packed, &out).args(["--dtype", dtype, "--force"]));
        assert!(summary.contains("0 rows"), "{summary}");
        run(bin("validate-embeddings")
            .arg(&out)
            .arg("--shards")
            .arg(shards.join("shard-00001.parquet")));
    }
}

#[test]
fn a_task_of_slurm_uses_the_cpus_that_it_was_given() {
    let folder = tempfile::tempdir().expect("temp folder");
    let batches = batches(folder.path(), 4096);
    let threads = |cpus: &str| {
        let events = folder.path().join(format!("{cpus}.jsonl"));
        let out = folder.path().join(format!("{cpus}.parquet"));
        let mut embed = embed(&batches, &out);
        embed
            .env("SLURM_CPUS_PER_TASK", cpus)
            .arg("--events")
            .arg(&events);
        run(&mut embed);
        let first = fs::read_to_string(events).expect("events");
        let first = first.lines().next().expect("a run").to_owned();
        let event: serde_json::Value = serde_json::from_str(&first).expect("JSON");
        event["threads"].as_u64().expect("a number")
    };
    let available = std::thread::available_parallelism().expect("CPUs").get() as u64;
    assert_eq!(threads("1"), 1);
    assert_eq!(threads("1000000"), available);
    assert_eq!(threads("none"), available);
}

/// The batches of a batches file, with a token that no vocabulary has in the first.
fn with_a_strange_token(batches: &Path) -> PathBuf {
    let file = BatchesFile::open(batches, &Stop::default()).expect("batches");
    let out = batches.with_file_name("strange.arrow");
    let mut writer = BatchesWriter::create(&out, file.labels(), file.provenance()).expect("create");
    for pack in 0..file.len() {
        let rows = file.batch(pack).expect("pack").record_batch().clone();
        let list: &ListArray = rows["tokens"].as_list();
        let (field, offsets, values, _) = list.clone().into_parts();
        let mut tokens = values.as_primitive::<UInt8Type>().values().to_vec();
        if pack == 0 {
            tokens[5] = 200;
        }
        let list = ListArray::new(field, offsets, Arc::new(UInt8Array::from(tokens)), None);
        let mut columns = rows.columns().to_vec();
        *columns.last_mut().expect("columns") = Arc::new(list);
        let rows = RecordBatch::try_new(batches_schema(Labels::default()), columns).expect("rows");
        writer.write(&rows).expect("write");
    }
    writer.finish().expect("finish");
    out
}

#[test]
fn a_token_that_is_no_token_is_an_error_of_its_file_however_it_is_computed() {
    let folder = tempfile::tempdir().expect("temp folder");
    let batches = with_a_strange_token(&batches(folder.path(), 1500));
    for options in [
        "--dtype f32",
        "--dtype int8",
        "--workers 2",
        "--workers 2 --dtype int8",
    ] {
        let out = folder.path().join("e.parquet");
        let mut embed = embed(&batches, &out);
        assert_fails(
            embed.args(options.split(' ')),
            65,
            "strange.arrow: record batch 0: sequence 0 of the batch has token 200 at 5",
        );
        let names = visible(folder.path());
        assert_eq!(names, ["packed-1500.arrow", "shards", "strange.arrow"]);
    }
}

#[test]
fn a_checkpoint_that_rotted_is_refused_before_anything_is_computed() {
    let folder = tempfile::tempdir().expect("temp folder");
    let (batches, out) = (
        batches(folder.path(), 1500),
        folder.path().join("e.parquet"),
    );
    let refuses = |model: &Path, what: &str| {
        let mut embed = bin("gpu-embed");
        embed.arg(&batches).arg("--out").arg(&out).arg("--model");
        assert_fails(embed.arg(model).args(["--device", "cpu"]), 65, what);
        assert!(!out.exists());
    };
    let model = model_copy(folder.path());
    let weights = model.join("model.safetensors");
    let mut bytes = fs::read(&weights).expect("weights");
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    fs::write(&weights, bytes).expect("write");
    refuses(
        &model,
        "tensor 'lm_head.layer_norm.weight': expected finite values, found -inf at index 63",
    );

    let whole = test_data("model-tiny-bin");
    let copy = folder.path().join("bin");
    fs::create_dir(&copy).expect("folder");
    for name in fs::read_dir(&whole).expect("folder") {
        let path = name.expect("entry").path();
        fs::copy(&path, copy.join(path.file_name().expect("name"))).expect("copy");
    }
    let weights = copy.join("pytorch_model-00002-of-00002.bin");
    let mut bytes = fs::read(&weights).expect("weights");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&weights, bytes).expect("write");
    refuses(
        &copy,
        "pytorch_model-00002-of-00002.bin: damaged: record 'data/",
    );
}
