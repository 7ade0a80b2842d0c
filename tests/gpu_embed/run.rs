//! Whole runs of `gpu-embed` on real proteins with the tiny model, and inputs that it refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{ListArray, RecordBatch, UInt8Array};
use plmkit_contract::{Labels, batches_schema};
use plmkit_kit::Stop;
use plmkit_store::{BatchesFile, BatchesWriter};

use crate::common::{self, assert_fails, bin, run, test_data, visible};
use crate::{assert_has, flip, validate, validate_shard};

/// Packed batches of the test proteins.
fn batches(folder: &Path, budget: u32) -> PathBuf {
    let out = folder.join(format!("packed-{budget}.arrow"));
    let mut shard = folder.join("shards/shard-00000.parquet");
    if !shard.exists() {
        shard = common::shard(&test_data("proteins.fasta"), &folder.join("shards"), &[]);
    }
    common::pack(&shard, &out, budget);
    out
}

/// A temporary folder, batches of the test proteins in it, and the path of an output.
fn case(budget: u32) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("temp folder");
    let batches = batches(folder.path(), budget);
    let out = folder.path().join("e.parquet");
    (folder, batches, out)
}

fn embed(batches: &Path, out: &Path) -> Command {
    common::embed(&[batches], &test_data("model-tiny"), out)
}

/// A copy of a model of the test data, whose files a test may spoil.
fn model_copy(model: &str, copy: &Path) -> PathBuf {
    fs::create_dir(copy).expect("folder");
    for entry in fs::read_dir(test_data(model)).expect("model") {
        let path = entry.expect("entry").path();
        fs::copy(&path, copy.join(path.file_name().expect("name"))).expect("copy");
    }
    copy.to_owned()
}

#[test]
fn vectors_do_not_depend_on_batches_or_threads() {
    let (folder, _, reference) = case(16384);
    let options = ["--pool", "mean,max,std,bos", "--layers", "0,2,4"];
    let runs = [(16384, "1"), (16384, "2"), (1500, "1"), (40, "2")];
    for (index, (budget, threads)) in runs.into_iter().enumerate() {
        let other = folder.path().join(format!("{budget}-{threads}.parquet"));
        let out = if index == 0 { &reference } else { &other };
        let mut embed = embed(&batches(folder.path(), budget), out);
        run(embed.args(options).args(["--threads", threads]));
        let mut validate = validate(out);
        validate.arg("--reference").arg(&reference);
        run(validate.args(["--min-cosine", "0.999999"]));
    }
}

#[test]
fn batches_that_are_far_from_full_are_an_error_of_the_log_alone() {
    let folder = tempfile::tempdir().expect("temp folder");
    let fasta = folder.path().join("a.fasta");
    for (residues, expected) in [(77, "error"), (82, "warn")] {
        let proteins = (0..6).map(|n| format!(">P{n}\n{}\n", "L".repeat(residues)));
        fs::write(&fasta, proteins.collect::<String>()).expect("write");
        let place = folder.path().join(expected);
        let shard = common::shard(&fasta, &place, &[]);
        let batches = place.join("b.arrow");
        common::pack(&shard, &batches, 100);
        let mut embed = embed(&batches, &place.join("e.parquet"));
        let said = run(embed.args(["--log-format", "json"]));
        let told = said
            .lines()
            .find(|line| line.contains("expected at least 85 %"));
        let level = format!("\"level\":\"{expected}\"");
        assert_has(told.expect("a line about packing"), &level);
        assert_has(&said, "(queue ");
    }
}

#[test]
fn a_complete_output_is_verified_and_left_alone() {
    let (_folder, batches, out) = case(16384);
    run(&mut embed(&batches, &out));
    let (bytes, modified) = (fs::read(&out).expect("read"), modified(&out));

    assert_has(&run(&mut embed(&batches, &out)), "already complete");
    assert_eq!(self::modified(&out), modified);

    let max = ["--pool", "max"];
    let what = "columns was [\"mean_4\"] and is now [\"max_4\"]";
    assert_fails(embed(&batches, &out).args(max), 73, what);
    assert!(fs::read(&out).expect("read") == bytes);

    run(embed(&batches, &out).args(max).arg("--force"));
    run(embed(&batches, &out).arg("--force"));
    assert!(fs::read(&out).expect("read") == bytes, "the same work");

    flip(&out, 0.5);
    assert_fails(embed(&batches, &out), 65, "--force replaces it");
}

fn modified(path: &Path) -> std::time::SystemTime {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .expect("modified")
}

#[test]
fn no_output_overwrites_an_input_or_another_output() {
    let (folder, batches, out) = case(16384);
    let model = model_copy("model-tiny", &folder.path().join("model"));
    let weights = model.join("model.safetensors");
    for (out, args, what) in [
        (&batches, "", "--out and a batches file"),
        (&weights, "", "--out and a file of the model"),
        (&out, "--events e.parquet", "--events and --out"),
        (&out, "--rejects ./e.parquet", "--rejects and --out"),
    ] {
        let mut embed = common::embed(&[&batches], &model, out);
        embed.current_dir(folder.path()).arg("--force");
        embed.args(args.split_whitespace());
        assert_fails(embed, 2, &format!("{what} are the same file"));
    }
}

#[test]
fn a_git_lfs_pointer_is_named_with_the_remedy() {
    let (folder, good, out) = case(16384);
    let at = |name: &str| folder.path().join(name);
    let oid = "0".repeat(64);
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 99\n");
    fs::write(at("pointer"), &pointer).expect("write");
    let refused = |command: &mut Command, name: &str| {
        let what = format!(
            "{name}: cannot open: expected the file itself, found a Git LFS pointer to it; git lfs pull fetches the file"
        );
        assert_fails(command, 66, &what);
    };
    for name in ["model.safetensors", "pytorch_model.bin", "config.json"] {
        let model = model_copy("model-tiny", &at(&format!("of-{name}")));
        if name == "pytorch_model.bin" {
            fs::remove_file(model.join("model.safetensors")).expect("remove");
        }
        fs::write(model.join(name), &pointer).expect("write");
        refused(&mut common::embed(&[&good], &model, &out), name);
    }
    for (program, arguments, output) in [
        ("fasta-shard", "--shards 1", "of-pointer"),
        ("pack-batches", "", "p.arrow"),
        ("monitor-log", "report --events", "r.json"),
    ] {
        let mut command = bin(program);
        command
            .args(arguments.split_whitespace())
            .arg(at("pointer"));
        refused(command.arg("--out").arg(at(output)), "pointer");
    }
    refused(&mut embed(&at("pointer"), &out), "pointer");
    refused(&mut validate(&at("pointer")), "pointer");
}

#[test]
fn inputs_that_are_not_batches() {
    let (folder, good, out) = case(16384);
    let at = |name: &str| folder.path().join(name);
    let whole = fs::read(&good).expect("read");
    fs::write(at("cut.arrow"), &whole[..whole.len() / 2]).expect("write");
    fs::write(at("flipped.arrow"), &whole).expect("write");
    flip(&at("flipped.arrow"), 0.5);
    fs::write(at("empty.arrow"), "").expect("write");
    let found = |kind: &str| {
        format!("expected a batches file, found a {kind}; pack-batches makes batches files")
    };
    let cut = "cut.arrow: not a readable Arrow IPC file";
    for (input, code, what) in [
        (at("absent.arrow"), 66, "absent.arrow: cannot open"),
        (
            at("shards"),
            66,
            "expected files named *.arrow in this folder",
        ),
        (at("shards/shard-00000.parquet"), 65, &found("shard")),
        (test_data("proteins.fasta"), 65, &found("FASTA file")),
        (
            test_data("make_proteins.py"),
            65,
            "not a readable Arrow IPC file",
        ),
        (at("cut.arrow"), 65, cut),
        (at("flipped.arrow"), 65, "flipped.arrow: "),
        (at("empty.arrow"), 65, "it has 0 bytes"),
    ] {
        assert_fails(embed(&input, &out), code, what);
        assert!(!out.exists());
    }
}

#[test]
fn models_that_cannot_be_used() {
    let (folder, batches, out) = case(16384);
    let model = model_copy("model-tiny", &folder.path().join("model"));
    let refused = |model: &Path, code: i32, what: &str| {
        assert_fails(common::embed(&[&batches], model, &out), code, what);
        assert!(!out.exists());
    };
    refused(&folder.path().join("absent"), 66, "absent");

    let weights = model.join("model.safetensors");
    let whole = fs::read(&weights).expect("read");
    fs::remove_file(&weights).expect("remove");
    refused(&model, 66, "model.safetensors");
    for length in [whole.len() - 100, 20] {
        fs::write(&weights, &whole[..length]).expect("write");
        refused(&model, 65, "model.safetensors");
    }
    // Values that are not finite, and damage.
    let mut bytes = whole.clone();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    fs::write(&weights, bytes).expect("write");
    let what = "tensor 'lm_head.layer_norm.weight': expected finite values, found -inf at index 63";
    refused(&model, 65, what);
    fs::write(&weights, &whole).expect("write");
    let copy = model_copy("model-tiny-bin", &folder.path().join("bin"));
    let name = "pytorch_model-00002-of-00002.bin";
    flip(&copy.join(name), 0.5);
    refused(&copy, 65, &format!("{name}: damaged: record 'data/"));

    let config = fs::read_to_string(model.join("config.json")).expect("read");
    let wide = config.replace("\"intermediate_size\": 256", "\"intermediate_size\": 512");
    assert_ne!(config, wide);
    for (config, what) in [(wide.as_str(), "512"), ("{", "config.json")] {
        fs::write(model.join("config.json"), config).expect("write");
        refused(&model, 65, what);
    }
    fs::remove_file(model.join("config.json")).expect("remove");
    refused(&model, 66, "config.json");
}

#[test]
fn layers_and_devices_that_do_not_exist() {
    let (folder, batches, out) = case(16384);
    let layer = "layer 5 does not exist";
    assert_fails(embed(&batches, &out).args(["--layers", "5"]), 2, layer);
    assert_eq!(visible(folder.path()), ["packed-16384.arrow", "shards"]);
    if Path::new("/proc/driver/nvidia/version").exists() {
        eprintln!("SKIPPED: this machine has an NVIDIA driver");
        return;
    }
    let mut on_gpu = bin("gpu-embed");
    on_gpu.arg(batches).arg("--out").arg(&out).arg("--model");
    on_gpu
        .arg(test_data("model-tiny"))
        .args(["--device", "cuda"]);
    assert_fails(on_gpu, 69, "NVIDIA driver");
    assert!(!out.exists());
}

#[test]
fn outputs_that_cannot_be_written() {
    let (folder, batches, _) = case(16384);
    let nowhere = folder.path().join("no/e.parquet");
    assert_fails(embed(&batches, &nowhere), 73, "cannot create");
    assert_fails(embed(&batches, folder.path()), 73, "is a directory");

    let Some(small) = common::SmallDisk::mount(16) else {
        return;
    };
    let out = small.path().join("e.parquet");
    // Compressed or not, vectors of all layers take more than 16 KiB.
    let options = ["--layers", "0,1,2,3,4", "--pool", "mean,max,std,bos"];
    let full = "no space left on device";
    assert_fails(embed(&batches, &out).args(options), 74, full);
    assert_eq!(common::all(small.path()), Vec::<String>::new());
}

#[test]
fn an_empty_shard_gives_an_empty_output() {
    let folder = tempfile::tempdir().expect("temp folder");
    let fasta = folder.path().join("one.fasta");
    fs::write(&fasta, ">a\nMK\n").expect("write");
    let shards = folder.path().join("shards");
    let mut shard = bin("fasta-shard");
    shard.arg(&fasta).arg("--out").arg(&shards);
    run(shard.args(["--shards", "2"]));
    let (empty, packed) = (
        shards.join("shard-00001.parquet"),
        folder.path().join("b.arrow"),
    );
    common::pack(&empty, &packed, 16384);
    let out = folder.path().join("e.parquet");
    for dtype in ["f32", "int8"] {
        let said = run(embed(&packed, &out).args(["--dtype", dtype, "--force"]));
        assert_has(&said, "0 rows");
        run(&mut validate_shard(&out, &empty));
    }
}

#[test]
fn a_slurm_task_uses_the_cpus_that_it_was_given() {
    let (folder, batches, _) = case(4096);
    let available = std::thread::available_parallelism().expect("CPUs").get() as u64;
    for (cpus, expected) in [("1", 1), ("1000000", available), ("none", available)] {
        let events = folder.path().join(format!("{cpus}.jsonl"));
        let mut embed = embed(&batches, &folder.path().join(format!("{cpus}.parquet")));
        embed.env("SLURM_CPUS_PER_TASK", cpus);
        run(embed.arg("--events").arg(&events));
        let events = fs::read_to_string(events).expect("events");
        let first = events.lines().next().expect("a run");
        let event: serde_json::Value = serde_json::from_str(first).expect("JSON");
        assert_eq!(event["threads"], expected);
    }
}

/// A copy of a batches file with an unknown token in the first batch.
fn with_a_strange_token(batches: &Path) -> PathBuf {
    let file = BatchesFile::open(batches, &Stop::default()).expect("batches");
    let out = batches.with_file_name("strange.arrow");
    let mut writer = BatchesWriter::create(&out, file.labels(), file.provenance()).expect("create");
    for batch in 0..file.len() {
        let rows = file.batch(batch).expect("batch").record_batch().clone();
        let list: &ListArray = rows["tokens"].as_list();
        let (field, offsets, values, _) = list.clone().into_parts();
        let mut tokens = values.as_primitive::<UInt8Type>().values().to_vec();
        if batch == 0 {
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
fn an_unknown_token_is_an_error_of_its_file_in_every_computation() {
    let (folder, batches, out) = case(1500);
    let batches = with_a_strange_token(&batches);
    let what = "strange.arrow: record batch 0: sequence 0 of the batch has token 200 at 5";
    for options in ["--dtype f32", "--dtype int8"] {
        let mut embed = embed(&batches, &out);
        assert_fails(embed.args(options.split(' ')), 65, what);
        let names = visible(folder.path());
        assert_eq!(names, ["packed-1500.arrow", "shards", "strange.arrow"]);
    }
}
