//! `monitor-log estimate`, the real binary on real shards.

use std::fs;
use std::path::Path;

use plmkit_contract::seal;
use serde_json::Value;

use crate::common::{assert_fails, command, run, test_data};

/// Cuts the test proteins into windows, in two shards.
fn shards(folder: &Path) {
    let fasta = test_data("proteins.fasta");
    let mut cut = command(
        folder,
        "fasta-shard --shards 2 --long-policy window --out set",
    );
    run(cut.arg(fasta));
}

fn estimate(folder: &Path, options: &str) -> Value {
    let line = format!("monitor-log estimate {options} --report e.json");
    run(&mut command(folder, &line));
    let text = fs::read(folder.join("e.json")).expect("report");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn the_work_is_that_of_the_manifest_and_of_the_shards() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let manifest = fs::read(folder.path().join("set/manifest.json")).expect("manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let model = "--model facebook/esm2_t6_8M_UR50D";
    let exact = estimate(folder.path(), &format!("set {model}"));
    for (of_work, of_manifest) in [
        ("sequences", "rows"),
        ("proteins", "accepted"),
        ("tokens", "tokens"),
    ] {
        assert_eq!(exact[of_work], manifest[of_manifest], "{of_work}");
    }
    // 12 x 320 x 320 parameters in each of 6 layers.
    let tokens = exact["tokens"].as_f64().expect("a number");
    assert_eq!(
        exact["linear_flops"],
        tokens * 2.0 * 6.0 * 12.0 * 320.0 * 320.0
    );

    // One by one they are the same.
    let files = "set/shard-00000.parquet set/shard-00001.parquet";
    let files = estimate(folder.path(), &format!("{files} {model}"));
    for figure in ["attention_flops", "proteins", "embedding_bytes", "times"] {
        assert_eq!(files[figure], exact[figure], "{figure}");
    }
}

#[test]
fn figures_of_three_proteins_are_those_by_hand() {
    let folder = tempfile::tempdir().expect("temp folder");
    let fasta = ">a\nMKV\n>b\nMKVLA\n>c\nMKVLAMKV\n";
    fs::write(folder.path().join("a.fasta"), fasta).expect("write");
    run(&mut command(
        folder.path(),
        "fasta-shard a.fasta --shards 1 --out set",
    ));
    let options = "set --model facebook/esm2_t6_8M_UR50D --residues --tflops 0.001";
    let found = estimate(folder.path(), options);
    // 5, 7 and 10 tokens.
    let (linear, attention) = (
        22.0 * 2.0 * 6.0 * 12.0 * 320.0 * 320.0,
        (25.0 + 49.0 + 100.0) * 6.0 * 4.0 * 320.0,
    );
    for (figure, expected) in [
        ("shards", 1.0),
        ("proteins", 3.0),
        ("tokens", 22.0),
        ("pairs", 174.0),
        ("residues", 16.0),
        ("linear_flops", linear),
        ("attention_flops", attention),
        // Four of a shard, six of a sample, four of a run.
        ("files", 16.0),
        // Three keys of 49 bytes and vectors, and those of the residues.
        ("embedding_bytes", 3.0 * 49.0 + 19.0 * 320.0 * 4.0),
    ] {
        assert_eq!(found[figure].as_f64(), Some(expected), "{figure}");
    }
    let hours = found["times"][0]["device_hours"].as_f64();
    assert_eq!(hours, Some((linear + attention) / 1e9 / 3600.0));
}

/// Run events of a shard, which took 10 s.
fn events(of: &Value, outcome: &str) -> String {
    // The longest row of the test proteins is a window of 1022 residues.
    let (sequences, tokens, pairs) = (&of["sequences"], &of["tokens"], &of["pairs"]);
    let run = r#"{"type":"run","run":"a","tool":"gpu-embed","version":"1","device":"cuda:0","gpu_names":["NVIDIA L4"],"dtype":"f16","flops_per_token":14745600,"flops_per_pair":7680}"#;
    let batch = format!(
        r#"{{"type":"batch","run":"a","batch":0,"sequences":{sequences},"tokens":{tokens},"residues":1,"longest":1024,"pairs":{pairs}}}"#
    );
    let done = format!(
        r#"{{"type":"done","run":"a","sequences":{sequences},"tokens":{tokens},"residues":1,"elapsed_s":10.0,"outcome":"{outcome}"}}"#
    );
    format!("{run}\n{batch}\n{done}\n")
}

#[test]
fn shards_that_measured_runs_finished_take_no_time() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let model = "--model facebook/esm2_t6_8M_UR50D";
    let of = |options: &str| estimate(folder.path(), &format!("{options} {model}"));
    let flops = |of: &Value| {
        let flops = |name: &str| of[name].as_f64().expect("a number");
        flops("linear_flops") + flops("attention_flops")
    };
    let first = of("set/shard-00000.parquet");
    let second = flops(&of("set/shard-00001.parquet"));
    for (outcome, left, expected) in [("done", 1, second), ("stopped", 2, second + flops(&first))] {
        fs::write(folder.path().join("e.jsonl"), events(&first, outcome)).expect("write");
        let found = of("set --measured e.jsonl");
        assert_eq!(found["shards_left"], left, "{outcome}");
        let time = &found["times"][0];
        assert_eq!(time["device"], "NVIDIA L4 in f16");
        let rate = flops(&first) / 10.0;
        assert_eq!(time["flops_per_s"].as_f64(), Some(rate));
        let seconds = time["device_hours"].as_f64().expect("hours") * 3600.0;
        let ratio = seconds * rate / expected;
        assert!((ratio - 1.0).abs() < 1e-9, "{outcome}: {ratio}");
    }
    let no_log =
        "monitor-log estimate set --model facebook/esm2_t6_8M_UR50D --measured set/manifest.json";
    assert_fails(
        command(folder.path(), no_log),
        65,
        "manifest.json: line 1: not a run event",
    );
    let other = "monitor-log estimate set --model facebook/esm2_t12_35M_UR50D --measured e.jsonl";
    assert_fails(
        command(folder.path(), other),
        65,
        "e.jsonl: run a: its operations are not those of this model",
    );
}

#[test]
fn a_real_run_is_of_its_shard() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let path = |name: &str| folder.path().join(name);
    crate::common::pack(&path("set/shard-00001.parquet"), &path("b.arrow"), 4096);
    // The second has SwiGLU.
    for model in ["model-tiny", "model-tiny-esmc"].map(test_data) {
        let mut embed = crate::common::embed(&[&path("b.arrow")], &model, &path("e.parquet"));
        run(embed.arg("--force").arg("--events").arg(path("e.jsonl")));
        let line = "monitor-log estimate set --measured e.jsonl --report e.json --model";
        run(command(folder.path(), line).arg(&model));
        let found = fs::read(path("e.json")).expect("report");
        let found: Value = serde_json::from_slice(&found).expect("JSON");
        assert_eq!(
            (&found["shards"], &found["shards_left"]),
            (&2.into(), &1.into())
        );
        assert_eq!(found["times"][0]["device"], "cpu in f32");
        fs::remove_file(path("e.jsonl")).expect("remove");
    }
}

#[test]
fn models_are_those_that_gpu_embed_reads() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let write = |name: &str, config: &str| {
        fs::create_dir(folder.path().join(name)).expect("folder");
        fs::write(folder.path().join(name).join("config.json"), config).expect("write");
    };
    // The names of the first checkpoints of ESMC-300M, and those of transformers.
    let first = r#"{"model_type": "esmc", "vocab_size": 64, "n_layers": 30, "d_model": 960, "n_heads": 15}"#;
    write("first", first);
    let names = [
        ("n_layers", "num_hidden_layers"),
        ("d_model", "hidden_size"),
        ("n_heads", "num_attention_heads"),
    ];
    let later = names
        .iter()
        .fold(first.to_owned(), |text, (old, new)| text.replace(old, new));
    write("later", &later);
    write("bert", r#"{"model_type": "bert"}"#);
    fs::create_dir(folder.path().join("empty")).expect("folder");
    // Four square matrices of attention, and three of SwiGLU.
    let flops = |layers: u64, hidden: u64, inner: u64| {
        2 * layers * (4 * hidden * hidden + 3 * hidden * inner)
    };
    let data = |name: &str| test_data(name).to_str().expect("UTF-8").to_owned();
    let pth = "/data/weights/esmc_tiny.pth";
    for (model, of_token) in [
        ("first".to_owned(), flops(30, 960, 2560)),
        ("later".to_owned(), flops(30, 960, 2560)),
        ("biohub/ESMC-300M".to_owned(), flops(30, 960, 2560)),
        (data("model-tiny-esmc"), flops(2, 24, 48)),
        (data("model-tiny-esmc-pth"), flops(1, 64, 16)),
        (data("model-tiny-esmc-pth") + pth, flops(1, 64, 16)),
    ] {
        let found = estimate(folder.path(), &format!("set --logits --model {model}"));
        let tokens = found["tokens"].as_u64().expect("tokens");
        assert_eq!(found["linear_flops"], (tokens * of_token) as f64, "{model}");
        assert_eq!(found["shape"]["logits"], 64);
    }
    for (model, code, what) in [
        (
            "bert",
            65,
            "bert/config.json: key 'model_type': expected \"esm\" or \"esmc\", found \"bert\"",
        ),
        (
            "empty",
            66,
            "empty: expected model.safetensors, pytorch_model.bin",
        ),
    ] {
        let line = format!("monitor-log estimate set --model {model}");
        assert_fails(command(folder.path(), &line), code, what);
    }
}

#[test]
fn lists_of_aliases_are_files_too_and_no_input_is_overwritten() {
    let folder = tempfile::tempdir().expect("temp folder");
    let fasta = folder.path().join("a.fasta");
    fs::write(&fasta, ">a\nMKV\n>b\nMKV\n").expect("write");
    for options in ["--out plain", "--out set --dedup"] {
        let line = format!("fasta-shard --shards 1 {options} a.fasta");
        run(&mut command(folder.path(), &line));
    }
    let model = "--model facebook/esm2_t6_8M_UR50D";
    let of = |set: &str| estimate(folder.path(), &format!("{set} {model}"));
    let files = |set: &str| of(set)["files"].as_u64().expect("a number");
    assert_eq!(files("set"), files("plain") + 1);
    let bytes = |name: &str| fs::metadata(folder.path().join(name)).expect("it").len();
    for (shards, out, code, what) in [
        ("set", "set/manifest.json", 2, "are the same file"),
        (
            "set/manifest.json",
            "set/manifest.json",
            2,
            "are the same file",
        ),
        ("set", "set/aliases.parquet", 73, "is a file of other data"),
        (
            "set/manifest.json",
            "set/shard-00000.parquet",
            73,
            "is a file of other data",
        ),
    ] {
        let line = format!("monitor-log estimate {shards} {model} --report {out}");
        let before = bytes(out);
        assert_fails(command(folder.path(), &line), code, what);
        assert_eq!(bytes(out), before);
    }
    // A report may be beside what it is about.
    let line = format!("monitor-log estimate manifest.json {model} --report new.json");
    run(&mut command(&folder.path().join("set"), &line));
}

#[test]
fn counts_that_are_not_those_of_the_shards_are_refused() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let path = folder.path().join("set/manifest.json");
    let text = fs::read(&path).expect("manifest");
    let mut manifest: Value = serde_json::from_slice(&text).expect("JSON");
    manifest.as_object_mut().expect("entries").remove("seal");
    let found = |figure: &str| manifest["shards"][1][figure].as_u64().expect("a count");
    for (figure, count) in [
        ("rows", found("rows") + 1),
        ("tokens", found("tokens") - 1),
        ("rows", u64::MAX),
        ("tokens", u64::MAX),
    ] {
        let mut changed = manifest.clone();
        changed["shards"][1][figure] = count.into();
        // In the sums, too.
        changed[figure] = count.into();
        fs::write(&path, seal(&changed)).expect("write");
        let line = "monitor-log estimate set --model facebook/esm2_t6_8M_UR50D";
        let what = "set/shard-00001.parquet: is not the shard that its manifest lists";
        assert_fails(command(folder.path(), line), 65, what);
    }
}

#[test]
fn a_changed_shard_and_an_unknown_model_are_errors() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let shard = |name: &str| folder.path().join("set").join(name);
    let estimate = |line: &str| command(folder.path(), &format!("monitor-log estimate {line}"));
    assert_fails(
        estimate("set --model esm2"),
        66,
        "esm2: expected a folder with config.json, or one of facebook/",
    );
    assert_fails(
        estimate("none --model facebook/esm2_t6_8M_UR50D"),
        66,
        "none",
    );
    for (rate, what) in [
        ("--tflops NaN", "expected a number above 0"),
        ("--tflops 0", "expected a number above 0"),
        ("--tflops 1 --measured e.jsonl", "cannot be used with"),
        ("--gpus 0", "invalid value '0'"),
    ] {
        let line = format!("set --model facebook/esm2_t6_8M_UR50D {rate}");
        assert_fails(estimate(&line), 2, what);
    }
    let layer = "set --model facebook/esm2_t6_8M_UR50D --layers 7";
    assert_fails(
        estimate(layer),
        2,
        "layer 7 does not exist; expected 0 to 6",
    );
    fs::copy(shard("shard-00000.parquet"), shard("shard-00001.parquet")).expect("copy");
    let other = "set --model facebook/esm2_t6_8M_UR50D";
    assert_fails(
        estimate(other),
        65,
        "shard-00001.parquet: is not the shard that its manifest lists",
    );
    fs::remove_file(shard("shard-00001.parquet")).expect("remove");
    for set in ["set", "set/manifest.json"] {
        let lost = format!("{set} --model facebook/esm2_t6_8M_UR50D");
        let what = "set/shard-00001.parquet: cannot open: no such file";
        assert_fails(estimate(&lost), 66, what);
    }
}
