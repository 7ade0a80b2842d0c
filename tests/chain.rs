//! The whole chain on real proteins: every record is accounted for under every policy.
#![cfg(feature = "torch")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{bin, run, test_data};
use serde_json::Value;

/// FASTA to a validated dataset in `folder`; returns the manifest.
fn chain(folder: &Path, options: &[&str]) -> Value {
    let shards = folder.join("shards");
    run(bin("fasta-shard")
        .arg(test_data("proteins.fasta"))
        .arg("--out-dir")
        .arg(&shards)
        .args(options));
    let manifest = json(&shards.join("manifest.json"));
    let mut embedded = Vec::new();
    let mut names: Vec<PathBuf> = Vec::new();
    for shard in manifest["shards"].as_array().expect("shards") {
        let shard = shards.join(shard["file"].as_str().expect("file"));
        let (packed, out) = (
            shard.with_extension("arrow"),
            shard.with_extension("emb.parquet"),
        );
        run(bin("pack-batches").arg(&shard).arg("--out").arg(&packed));
        run(bin("gpu-embed")
            .arg(&packed)
            .arg("--out")
            .arg(&out)
            .arg("--model")
            .arg(test_data("model-tiny")));
        names.push(shard);
        embedded.push(out);
    }
    let report = folder.join("report.json");
    run(bin("validate-embeddings")
        .args(&embedded)
        .arg("--shards")
        .args(&names)
        .arg("--rejects")
        .arg(shards.join("rejects.csv"))
        .arg("--report")
        .arg(&report));
    manifest
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("read")).expect("JSON")
}

fn count(manifest: &Value, name: &str) -> u64 {
    manifest[name].as_u64().expect("a count")
}

#[test]
fn long_proteins_under_every_policy() {
    let fasta = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    let records = fasta.matches('>').count() as u64;
    let long: Vec<u64> = fasta
        .split('>')
        .skip(1)
        .map(|record| record.lines().skip(1).map(|line| line.len() as u64).sum())
        .filter(|&length| length > 1022)
        .collect();
    assert!(long.len() > 3, "the test data has long proteins");
    let long_records = long.len() as u64;
    let windows: u64 = long
        .iter()
        .map(|length| (length - 256).div_ceil(1022 - 256))
        .sum();

    for (policy, rows, rejected) in [
        ("truncate", records, 0),
        ("window", records - long_records + windows, 0),
        ("split-off", records, 0),
        ("reject", records - long_records, long_records),
    ] {
        let folder = tempfile::tempdir().expect("temp folder");
        let manifest = chain(folder.path(), &["--shards", "2", "--long", policy]);
        assert_eq!(count(&manifest, "records"), records, "{policy}");
        assert_eq!(count(&manifest, "rows"), rows, "{policy}");
        assert_eq!(
            count(&manifest["rejected"], "too_long"),
            rejected,
            "{policy}"
        );
        assert_eq!(count(&manifest, "accepted"), records - rejected, "{policy}");
    }
}

#[test]
fn shards_of_a_token_budget() {
    let folder = tempfile::tempdir().expect("temp folder");
    let manifest = chain(folder.path(), &["--max-shard-tokens", "9000"]);
    let shards = manifest["shards"].as_array().expect("shards");
    assert!(shards.len() > 3);
    assert!(shards.iter().all(|shard| count(shard, "tokens") <= 9000));
}

/// A dataset with a part missing must not pass.
#[test]
fn a_lost_shard_is_noticed() {
    let folder = tempfile::tempdir().expect("temp folder");
    chain(folder.path(), &["--shards", "2"]);
    let shards = folder.path().join("shards");
    let output = bin("validate-embeddings")
        .arg(shards.join("shard-00000.emb.parquet"))
        .arg("--shards")
        .args([
            shards.join("shard-00000.parquet"),
            shards.join("shard-00001.parquet"),
        ])
        .output()
        .expect("run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("coverage: 52 rows, 100 expected: 0 rejected, 48 missing"),
        "{stderr}"
    );
}
