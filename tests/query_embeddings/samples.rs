//! Several samples as one table.

use std::fs;
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, StringArray};
use plmkit_contract::{
    EmbeddingLayout, KeyColumns, Labels, Provenance, RowKey, RowsBuilder, StoreDtype, seal,
};
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};
use serde_json::{Value, json};

use crate::common::{all, assert_failed, bin, visible};
use crate::dataset::succeeded;
use crate::guards::{relist, tool};
use crate::set::{DIM, MEAN, Row, Set, alter_digest, alter_footer, failed, rows, vectors};

/// A dataset of this sample, in two interleaved parts, with a rejected record after the last row.
fn sample(set: &Set, name: &str, rows: &[Row], model: &str) -> PathBuf {
    let folder = set.path(name);
    fs::create_dir_all(folder.join("embeddings")).expect("folder");
    fs::create_dir_all(folder.join("rejects")).expect("folder");
    let layout = EmbeddingLayout {
        logits: plmkit_contract::VOCABULARY,
        columns: vec![MEAN],
        dim: DIM,
        dtype: StoreDtype::F32,
        stitched: false,
        labels: Labels {
            sample: true,
            description: false,
        },
    };
    let rejects = "ordinal,id,length,reason,start\n40,P40,9,not_finite,0\n";
    fs::write(folder.join("rejects/a.csv"), rejects).expect("write");
    let digest = plmkit_contract::ByteDigest::compute(rejects.as_bytes()).to_string();
    let parts = (0..2).map(|part| {
        let file = format!("embeddings/{part}.parquet");
        let mine: Vec<Row> = rows
            .iter()
            .filter(|row| row.ordinal % 2 == part)
            .cloned()
            .collect();
        let mut writer = EmbeddingsWriter::create(&folder.join(&file), &layout).expect("create");
        let mut keys = RowsBuilder::of_keys();
        for row in &mine {
            keys.push(&RowKey {
                ordinal: row.ordinal,
                id: &row.id,
                start: row.start,
                length: row.length,
                truncated: row.truncated,
                digest: row.digest,
                n_windows: 1,
            });
        }
        let mut columns = keys.finish();
        columns.push(Arc::new(StringArray::from_iter_values(iter::repeat_n(
            name,
            mine.len(),
        ))));
        columns.push(vectors(&mine, &layout.dtype.arrow()));
        let batch = RecordBatch::try_new(Arc::clone(writer.schema()), columns);
        writer.write(&batch.expect("rows")).expect("write");
        let provenance = Provenance::new("gpu-embed", Vec::new());
        let provenance = provenance
            .with("sample", name)
            .with("model", model)
            .with("source", name);
        let summary = writer
            .finish(&provenance.with_rejects(digest.clone()))
            .expect("finish");
        json!({ "file": file, "rows": mine.len(), "digest": summary.to_string() })
    });
    let parts: Vec<Value> = parts.collect();
    let listed = json!({
        "contract": "1", "outcome": "pass", "sample": name, "model_digest": model, "embeddings": parts, "rows": rows.len(),
        "records": 41, "rejected": { "not_finite": 1 }, "truncated": 1, "aliases": 0,
        "rejects": [{ "file": "rejects/a.csv", "rows": 1, "digest": digest }],
        "inputs": [{ "name": format!("{name}.fasta") }],
    });
    fs::write(folder.join("dataset.json"), seal(&listed)).expect("write");
    folder
}

/// Ordinal, start, sample, id and the first value of each row of a dataset.
fn content(folder: &std::path::Path) -> Vec<(u64, u32, String, String, u32)> {
    let mut content = Vec::new();
    for name in visible(&folder.join("embeddings")) {
        let mut reader =
            EmbeddingsReader::open(&folder.join("embeddings").join(name)).expect("a file");
        while let Some(batch) = reader.next_batch().expect("sound") {
            let samples = batch["sample"].as_string::<i32>();
            for (place, key) in KeyColumns::new(&batch).rows().enumerate() {
                let vector = batch["mean_6"].as_fixed_size_list().value(place);
                let first = vector
                    .as_primitive::<arrow_array::types::Float32Type>()
                    .value(0);
                let sample = samples.value(place).to_owned();
                content.push((
                    key.ordinal,
                    key.start,
                    sample,
                    key.id.to_owned(),
                    first.to_bits(),
                ));
            }
        }
    }
    content
}

#[test]
fn samples_follow_each_other_in_one_table() {
    let set = Set::new();
    let few = &rows()[..5];
    sample(&set, "a", &rows(), "m");
    sample(&set, "b", few, "m");
    let stderr = succeeded(&tool(&set, "combine b a --out both --rows-per-file 20"));
    assert!(stderr.contains("35 rows of 4 parts in 2 files"), "{stderr}");
    // The last record of b was rejected: it has ordinal 40.
    let of = |name: &'static str, rows: &[Row], offset: u64| {
        let row = |row: &Row| {
            let first = row.vector[0].to_bits();
            (
                row.ordinal + offset,
                row.start,
                name.to_owned(),
                row.id.clone(),
                first,
            )
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let both = set.path("both");
    assert_eq!(
        content(&both),
        [of("b", few, 0), of("a", &rows(), 41)].concat()
    );
    let rejects = fs::read_to_string(both.join("rejects/rows.csv")).expect("a list");
    let expected = "ordinal,id,length,reason,start\n40,P40,9,not_finite,0\n81,P40,9,not_finite,0\n";
    assert_eq!(rejects, expected);
    let listed = fs::read(both.join("dataset.json")).expect("a list");
    let listed: Value = serde_json::from_slice(&listed).expect("JSON");
    for (name, expected) in [
        ("sample", json!("b, a")),
        ("rows", json!(35)),
        ("records", json!(82)),
        ("truncated", json!(1 + 1)),
        ("rejected", json!({ "not_finite": 2 })),
        (
            "inputs",
            json!([{ "name": "b.fasta" }, { "name": "a.fasta" }]),
        ),
        ("shard_options", Value::Null),
    ] {
        assert_eq!(listed[name], expected, "{name}");
    }
    assert_eq!(
        listed["combined"]["parts"][2]["file"],
        "a/embeddings/0.parquet"
    );
    let mut validate = bin("validate-embeddings");
    let (report, _) = set.report(validate.arg("--dataset").arg(&both), 0);
    assert_eq!(failed(&report), Vec::<&str>::new());
    let again = succeeded(&tool(&set, "combine b a --out both --rows-per-file 20"));
    assert!(again.contains("already complete"), "{again}");
    assert_failed(
        &tool(&set, "combine a b --out both --rows-per-file 20"),
        73,
        "not the same",
    );
    // It is a dataset like others, and can be combined with more.
    sample(&set, "c", few, "m");
    succeeded(&tool(&set, "combine both c --out three"));
    assert_eq!(content(&set.path("three")).len(), 40);
    let stdout = tool(&set, "lookup three P03 --column mean_6").stdout;
    assert_eq!(String::from_utf8_lossy(&stdout).lines().count(), 3);
    let line = "neighbours c three --top 3 --format tsv --out hits.tsv";
    succeeded(&tool(&set, line));
    let hits = fs::read_to_string(set.path("hits.tsv")).expect("hits");
    let mut lines = hits.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.ends_with("\tquery_sample\ttarget_sample"))
    );
    let found: Vec<&str> = lines.take(3).map(|line| &line[line.len() - 3..]).collect();
    assert_eq!(found, ["c\tb", "c\ta", "c\tc"]);
    assert!(
        !all(&set.path("."))
            .iter()
            .any(|name| name.contains("plmkit"))
    );
}

#[test]
fn parts_that_contradict_their_metadata_are_refused() {
    let set = Set::new();
    let part = |folder: &std::path::Path| folder.join("embeddings/1.parquet");
    let lines = [
        "combine b a --out both",
        "combine a --out alone",
        "select a --id P01 --id P02 --out p.parquet",
        "select a --id P00 --id P01 --allow-missing --out p.npy",
    ];
    let refused = |lines: &[&str], what: &str| {
        for line in lines {
            assert_failed(&tool(&set, line), 65, what);
        }
        for out in ["both", "alone", "p.parquet", "p.npy"] {
            assert!(!set.path(out).exists(), "{out}");
        }
    };
    sample(&set, "b", &rows()[..5], "m");
    // The parts name sample a, the rows of one sample c.
    let a = sample(&set, "a", &rows(), "m");
    let c = sample(&set, "c", &rows(), "m");
    fs::copy(part(&c), part(&a)).expect("copy");
    alter_footer(&part(&a), "\"sample\":\"c\"", "\"sample\":\"a\"");
    alter_footer(&part(&a), "\"source\":\"c\"", "\"source\":\"a\"");
    let digest = |name: &str| {
        let file = EmbeddingsReader::open(&set.path(name)).expect("a part");
        file.digest()
    };
    let relist_parts = || {
        let parts = [0, 1].map(|place| {
            let file = format!("embeddings/{place}.parquet");
            let digest = digest(&format!("a/{file}"));
            json!({ "file": file, "rows": digest.rows(), "digest": digest.to_string() })
        });
        relist(&a, json!({ "embeddings": parts }));
    };
    relist_parts();
    refused(
        &lines,
        "1.parquet: expected rows of sample 'a', as its metadata say, found 'c'",
    );
    let validate = "--report r.json a/embeddings";
    refused(
        &[validate],
        "1.parquet: expected rows of sample 'a', as its metadata say, found 'c'",
    );
    for is_sum in [true, false] {
        sample(&set, "a", &rows(), "m");
        alter_digest(&part(&a), digest("a/embeddings/1.parquet"), is_sum);
        relist_parts();
        refused(&lines[..2], "1.parquet: expected rows xxh3-128-sum:");
    }
}

#[test]
fn samples_that_do_not_fit_together_are_refused() {
    let set = Set::new();
    sample(&set, "a", &rows(), "m");
    sample(&set, "b", &rows(), "other");
    let c = sample(&set, "c", &rows(), "m");
    crate::dataset::dataset(&set, 2, |row| (row.ordinal % 2) as usize);
    relist(&c, json!({ "aliases": 2 }));
    for (line, code, what) in [
        (
            "combine a b --out new",
            65,
            "b/embeddings/0.parquet: expected model \"m\", found \"other\"",
        ),
        (
            "combine a a --out new",
            65,
            "a/embeddings/0.parquet: expected other samples than in the datasets before, found a again",
        ),
        (
            "combine a sample --out new",
            65,
            "sample/embeddings/shard-00000.parquet: expected a column sample",
        ),
        (
            "combine a c --out new",
            2,
            "c: 2 records have no rows of their own: combine this dataset alone first",
        ),
        (
            "combine a c --known a --out new",
            2,
            "--known: expected one dataset with it",
        ),
        (
            "combine a c --format npy --out new.npy",
            2,
            "--format: expected one dataset with npy",
        ),
        (
            "combine a none --out new",
            66,
            "none: no such file or folder",
        ),
    ] {
        assert_failed(&tool(&set, line), code, what);
        assert!(!set.path("new").exists(), "{line}");
    }
    let stderr = succeeded(&tool(&set, "combine a c --distinct --out new"));
    assert!(stderr.contains("2 records left out"), "{stderr}");
}
