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
    let work = &exact["work"];
    assert_eq!(work["exact"], true);
    for (of_work, of_manifest) in [
        ("sequences", "rows"),
        ("proteins", "accepted"),
        ("tokens", "tokens"),
    ] {
        assert_eq!(work[of_work], manifest[of_manifest], "{of_work}");
    }
    // 12 x 320 x 320 parameters in each of 6 layers.
    let tokens = work["tokens"].as_f64().expect("a number");
    assert_eq!(
        exact["linear_flops"],
        tokens * 2.0 * 6.0 * 12.0 * 320.0 * 320.0
    );

    // One by one they are the same, and without the files nearly.
    let files = "set/shard-00000.parquet set/shard-00001.parquet";
    let files = estimate(folder.path(), &format!("{files} {model}"));
    assert_eq!(files["attention_flops"], exact["attention_flops"]);
    assert_eq!(files["disk"]["embeddings"], exact["disk"]["embeddings"]);
    fs::remove_file(folder.path().join("set/shard-00001.parquet")).expect("remove");
    let from_manifest = estimate(folder.path(), &format!("set/manifest.json {model}"));
    assert_eq!(from_manifest["work"]["exact"], false);
    assert_eq!(from_manifest["linear_flops"], exact["linear_flops"]);
    for figure in [
        "/attention_flops",
        "/work/residues",
        "/work/residue_pairs",
        "/disk/shards",
        "/disk/embeddings",
    ] {
        let of = |estimate: &Value| {
            estimate
                .pointer(figure)
                .and_then(Value::as_f64)
                .expect(figure)
        };
        let ratio = of(&from_manifest) / of(&exact);
        assert!((0.9..1.1).contains(&ratio), "{figure}: {ratio}");
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
    let of = |set: &str| estimate(folder.path(), &format!("{set} {model}"))["disk"].clone();
    let (plain, set) = (of("plain"), of("set"));
    let number = |disk: &Value, figure: &str| disk[figure].as_u64().expect("a number");
    assert_eq!(number(&set, "files"), number(&plain, "files") + 1);
    let bytes = |name: &str| fs::metadata(folder.path().join(name)).expect("it").len();
    let stored = bytes("set/shard-00000.parquet") + bytes("set/aliases.parquet");
    assert_eq!(number(&set, "shards"), stored);
    for (shards, out) in [
        ("set", "set/aliases.parquet"),
        ("set", "set/manifest.json"),
        ("set/manifest.json", "set/shard-00000.parquet"),
    ] {
        let line = format!("monitor-log estimate {shards} {model} --report {out}");
        let before = bytes(out);
        assert_fails(command(folder.path(), &line), 2, "are the same file");
        assert_eq!(bytes(out), before);
    }
    let line = format!("monitor-log estimate manifest.json {model} --report aliases.parquet");
    let set = folder.path().join("set");
    assert_fails(command(&set, &line), 2, "are the same file");
}

#[test]
fn counts_of_a_manifest_that_no_shards_have_are_refused() {
    let folder = tempfile::tempdir().expect("temp folder");
    shards(folder.path());
    let path = folder.path().join("manifest.json");
    let text = fs::read(folder.path().join("set/manifest.json")).expect("manifest");
    let mut manifest: Value = serde_json::from_slice(&text).expect("JSON");
    manifest.as_object_mut().expect("entries").remove("seal");
    let huge = u64::MAX / 2 + 1;
    for (rows, sum, expected) in [
        (vec![huge], huge, "rows: expected at most "),
        (vec![huge, huge], u64::MAX, "rows: expected at most "),
        (
            vec![1, 1],
            3,
            "rows: expected 2, the sum over its shards, found 3",
        ),
    ] {
        let mut changed = manifest.clone();
        let shards = changed["shards"].as_array_mut().expect("shards");
        shards.truncate(rows.len());
        for (shard, rows) in shards.iter_mut().zip(rows) {
            (shard["rows"], shard["residues"], shard["tokens"]) = (rows.into(), 0.into(), 0.into());
        }
        (changed["rows"], changed["residues"], changed["tokens"]) =
            (sum.into(), 0.into(), 0.into());
        fs::write(&path, seal(&changed)).expect("write");
        let line = "monitor-log estimate manifest.json --model facebook/esm2_t6_8M_UR50D";
        assert_fails(command(folder.path(), line), 65, expected);
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
    let cpu = "set --model facebook/esm2_t6_8M_UR50D --device cpu";
    assert_fails(estimate(cpu), 2, "no rate is known for 'cpu'");
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
}
