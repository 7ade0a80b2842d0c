//! `monitor-log estimate`, the real binary on real shards.

use std::fs;
use std::path::Path;

use plmkit_contract::seal;
use serde_json::Value;

use crate::common::{assert_fails, command, run, test_data};

const MODEL: &str = "facebook/esm2_t6_8M_UR50D";

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
    let exact = estimate(folder.path(), &format!("set --model {MODEL}"));
    for (of_work, of_manifest) in [
        ("sequences", "rows"),
        ("proteins", "accepted"),
        ("tokens", "tokens"),
    ] {
        assert_eq!(exact[of_work], manifest[of_manifest], "{of_work}");
    }
    // One by one they are the same.
    let files = "set/shard-00000.parquet set/shard-00001.parquet";
    let files = estimate(folder.path(), &format!("{files} --model {MODEL}"));
    for figure in ["attention_flops", "proteins", "embedding_bytes", "times"] {
        assert_eq!(files[figure], exact[figure], "{figure}");
    }
}

/// Operations of the 8M model on so many tokens and pairs of tokens: of the matrix products and of attention.
fn flops(tokens: f64, pairs: f64) -> [f64; 2] {
    [
        tokens * 2.0 * 6.0 * 12.0 * 320.0 * 320.0,
        pairs * 6.0 * 4.0 * 320.0,
    ]
}

#[test]
fn figures_of_three_proteins_are_those_by_hand() {
    let folder = tempfile::tempdir().expect("temp folder");
    let fasta = ">a\nMKV\n>b\nMKVLA\n>c\nMKVLAMKV\n";
    fs::write(folder.path().join("a.fasta"), fasta).expect("write");
    for cut in [
        "whole",
        "cut --long-policy truncate --max-residues 5",
        "windows --long-policy window --max-residues 5 --overlap 2",
    ] {
        let line = format!("fasta-shard a.fasta --shards 1 --out {cut}");
        run(&mut command(folder.path(), &line));
    }
    // 5, 7 and 10 tokens; in windows 5, 7, 7 and 7.
    let [linear, attention] = flops(22.0, 174.0);
    let whole: f64 = flops(22.0, 174.0).iter().sum();
    let windows: f64 = flops(26.0, 172.0).iter().sum();
    // 40 % of the 2,250 TFLOP/s of a B200.
    let hours = |flops: f64| flops / (0.4 * (2250.0 * 1e12)) / 3600.0;
    let (tokens, masked) = (4 * 5 + 6 * 7 + 9 * 10, 4 * 25 + 6 * 49 + 9 * 100);
    for (options, figures) in [
        (
            "whole --residues",
            &[
                ("/shards", 1.0),
                ("/proteins", 3.0),
                ("/tokens", 22.0),
                ("/pairs", 174.0),
                ("/residues", 16.0),
                ("/linear_flops", linear),
                ("/attention_flops", attention),
                // Four of a shard, six of a sample, five of a run.
                ("/files", 15.0),
                // Three keys of 49 bytes and vectors, and those of the residues.
                ("/embedding_bytes", 3.0 * 49.0 + 19.0 * 320.0 * 4.0),
                ("/times/0/device_hours", hours(whole)),
                ("/times/0/wall_hours", hours(whole)),
                ("/tensor_memory_mib", 614.0),
            ][..],
        ),
        (
            "whole --logits --store-dtype f16",
            &[("/embedding_bytes", 3.0 * (49.0 + 640.0) + 16.0 * 33.0 * 2.0)],
        ),
        (
            "cut",
            &[("/proteins", 3.0), ("/sequences", 3.0), ("/residues", 13.0)],
        ),
        // A map of contacts is that of the whole protein.
        (
            "windows --contacts",
            &[
                ("/proteins", 3.0),
                ("/sequences", 4.0),
                ("/tokens", 26.0),
                ("/pairs", 172.0),
                ("/residues", 16.0),
                ("/embedding_bytes", 3.0 * (49.0 + 1280.0) + 98.0 * 4.0),
            ],
        ),
        // A row is computed once more for each residue.
        (
            "whole --scores masked",
            &[
                ("/proteins", 3.0),
                ("/sequences", 19.0),
                ("/tokens", f64::from(tokens)),
                ("/pairs", f64::from(masked)),
                ("/residues", 16.0),
            ],
        ),
        // The larger shard is more than half of the work; of three equal ones, half of the work is more than one shard.
        (
            "whole windows --gpus 2",
            &[
                ("/files", 5.0 + 2.0 * 10.0),
                ("/times/0/device_hours", hours(whole + windows)),
                ("/times/0/wall_hours", hours(windows)),
            ],
        ),
        (
            "whole whole whole --gpus 2",
            &[("/times/0/wall_hours", hours(1.5 * whole))],
        ),
        // 40 % of 989.4 and 66.9 TFLOP/s of an H100.
        (
            "whole --dtype f16",
            &[("/times/1/flops_per_s", 0.4 * (989.4 * 1e12))],
        ),
        (
            "whole --dtype f32",
            &[("/times/1/flops_per_s", 0.4 * (66.9 * 1e12))],
        ),
    ] {
        let line = format!("{options} --model {MODEL}");
        let found = estimate(folder.path(), &line);
        for (figure, expected) in figures {
            let found = found.pointer(figure).and_then(Value::as_f64);
            assert_eq!(found, Some(*expected), "{options}: {figure}");
        }
    }
}

#[test]
fn the_estimate_is_printed_as_a_table_with_the_time_on_each_device() {
    let folder = tempfile::tempdir().expect("temp folder");
    fs::write(folder.path().join("a.fasta"), ">a\nMKV\n").expect("write");
    run(&mut command(
        folder.path(),
        "fasta-shard a.fasta --shards 1 --out set",
    ));
    let printed = |options: &str| {
        let line = format!("monitor-log estimate set --model {MODEL} {options}");
        let output = command(folder.path(), &line).output().expect("run");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let expected = format!(
        "{MODEL}: 6 layers of 320, mean_6 in f32
work   1 proteins, 1 sequences, 5 tokens
       7.39e7 FLOP, 0.3 % of them attention
files  15
bytes  1329 of embeddings, before compression
memory 614 MiB of tensors on a GPU with batches of 65536 tokens, by a formula, not measured
time   of 1 of 1 shards at 40 % of the peak in f16: 0.0 s on B200 (0.0 s on 2), 0.0 s on H100 80GB HBM3 (0.0 s on 2), "
    );
    let found = printed("--gpus 2");
    assert!(found.starts_with(&expected), "{found}");
    let devices = |dtype: &str| printed(&format!("--dtype {dtype}"));
    assert!(devices("f16").contains(" on T4"));
    assert!(!devices("bf16").contains(" on T4"), "it has no bf16");
    for (dtype, expected) in [
        (
            "fp8",
            "memory 621 MiB of tensors on a GPU with batches of 65536 tokens, by a formula, not measured
time   of 1 of 1 shards: unknown, as no GPU was measured in fp8; monitor-log estimate --measured takes the rate of runs
",
        ),
        (
            "int8",
            "memory 7 MiB of weights on a CPU, by a formula, not measured
time   of 1 of 1 shards: unknown, as int8 is computed on CPUs, which only plmkit estimate measures
",
        ),
    ] {
        let found = devices(dtype);
        assert!(found.ends_with(expected), "{found}");
    }
}

/// Run events of a shard, which took 10 s.
fn events(of: &Value, outcome: &str) -> String {
    // The longest row of the test proteins is a window of 1022 residues.
    let (sequences, tokens, pairs) = (&of["sequences"], &of["tokens"], &of["pairs"]);
    let run = r#"{"type":"run","run":"a","tool":"gpu-embed","version":"1","device":"cuda:0","gpu_names":["NVIDIA L4"],"dtype":"f16","flops_per_token":14745600,"flops_per_pair":7680}"#;
    let batch = format!(
        r#"{{"type":"batch","run":"a","batch":0,"sequences":{sequences},"tokens":{tokens},"residues":1,"elapsed_s":10.0,"longest":1024,"pairs":{pairs}}}"#
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
    let of = |options: &str| estimate(folder.path(), &format!("{options} --model {MODEL}"));
    let flops = |of: &Value| {
        let flops = |name: &str| of[name].as_f64().expect("a number");
        flops("linear_flops") + flops("attention_flops")
    };
    let first = of("set/shard-00000.parquet");
    let second = flops(&of("set/shard-00001.parquet"));
    let write = |log: &str| fs::write(folder.path().join("e.jsonl"), log).expect("write");
    let done = events(&first, "done");
    let (killed, _) = done.split_once("{\"type\":\"done").expect("an end");
    let sequences = first["sequences"].as_u64().expect("a number");
    let of_other = done.replacen(
        &format!("\"sequences\":{sequences},"),
        &format!("\"sequences\":{},", sequences + 1),
        1,
    );
    let (both, twice) = ("set", "set/shard-00000.parquet set/shard-00000.parquet");
    let all = second + flops(&first);
    for (shards, log, left, expected) in [
        (both, &*done, 1, second),
        (twice, &done, 1, flops(&first)),
        (both, &events(&first, "stopped"), 2, all),
        (both, killed, 2, all),
        (both, &of_other, 2, all),
    ] {
        write(log);
        let found = of(&format!("{shards} --measured e.jsonl"));
        assert_eq!(found["shards_left"], left, "{log}");
        let time = &found["times"][0];
        assert_eq!(time["device"], "NVIDIA L4 in f16");
        let rate = flops(&first) / 10.0;
        assert_eq!(time["flops_per_s"].as_f64(), Some(rate));
        let seconds = time["device_hours"].as_f64().expect("hours") * 3600.0;
        let ratio = seconds * rate / expected;
        assert!((ratio - 1.0).abs() < 1e-9, "{log}: {ratio}");
    }
    // A run on a CPU, which took twice as long: all that both computed, in the time of both.
    let cpu = done.replace("\"gpu_names\":[\"NVIDIA L4\"],", "");
    let cpu = cpu.replace("cuda:0", "cpu").replace("10.0", "20.0");
    fs::write(folder.path().join("cpu.jsonl"), cpu).expect("write");
    write(&done);
    fs::create_dir_all(folder.path().join("results/a/logs")).expect("folder");
    for log in ["e.jsonl", "cpu.jsonl"] {
        let below = folder.path().join("results/a/logs").join(log);
        fs::copy(folder.path().join(log), below).expect("copy");
    }
    for measured in ["e.jsonl cpu.jsonl", "results"] {
        let found = of(&format!("set --measured {measured}"));
        assert_eq!(found["times"][0]["device"], "NVIDIA L4 in f16, cpu in f16");
        let rate = found["times"][0]["flops_per_s"].as_f64();
        assert_eq!(rate, Some(2.0 * flops(&first) / 30.0));
    }

    let other = "its operations are not those of this model: measured was unknown";
    let impossible = "its rate is impossible; expected 1 to 1e18 operations a second";
    for (from, to, what) in [
        ("", "", "manifest.json: line 1: not a run event"),
        ("14745600", "7", other),
        (",\"flops_per_pair\":7680", "", "its operations are unknown"),
        ("\"elapsed_s\":10.0", "\"elapsed_s\":0.0", impossible),
    ] {
        write(&done.replace(from, to));
        let log = if from.is_empty() {
            "set/manifest.json"
        } else {
            "e.jsonl"
        };
        let line = format!("monitor-log estimate set --model {MODEL} --measured {log}");
        assert_fails(command(folder.path(), &line), 65, what);
    }
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
    let model = format!("--model {MODEL}");
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
        ("set", "set/aliases.parquet", 73, "and is a list of aliases"),
        (
            "set/manifest.json",
            "set/shard-00000.parquet",
            73,
            "and is a shard",
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
        let line = format!("monitor-log estimate set --model {MODEL}");
        let what = "set/shard-00001.parquet: is not the shard that its manifest lists";
        assert_fails(command(folder.path(), &line), 65, what);
    }
}

#[test]
fn a_changed_shard_and_an_unknown_model_are_errors() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let shard = |name: &str| folder.path().join("set").join(name);
    let estimate = |line: &str| command(folder.path(), &format!("monitor-log estimate {line}"));
    for (shards, options, code, what) in [
        ("set", "--gpus 0", 2, "invalid value '0'"),
        (
            "set",
            "--layers 7",
            2,
            "layer 7 does not exist; expected 0 to 6",
        ),
        ("none", "--gpus 1", 66, "none"),
    ] {
        let line = format!("{shards} --model {MODEL} {options}");
        assert_fails(estimate(&line), code, what);
    }
    assert_fails(
        estimate("set --model esm2"),
        66,
        "esm2: expected a folder with config.json, or one of facebook/",
    );
    fs::copy(shard("shard-00000.parquet"), shard("shard-00001.parquet")).expect("copy");
    let other = "shard-00001.parquet: is not the shard that its manifest lists";
    assert_fails(estimate(&format!("set --model {MODEL}")), 65, other);
    fs::remove_file(shard("shard-00001.parquet")).expect("remove");
    for set in ["set", "set/manifest.json"] {
        let what = "set/shard-00001.parquet: cannot open: no such file";
        assert_fails(estimate(&format!("{set} --model {MODEL}")), 66, what);
    }
}
