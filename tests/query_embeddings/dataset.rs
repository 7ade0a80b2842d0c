//! Datasets of many parts: combined, selected from and looked up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use plmkit_contract::{
    AliasRow, ByteDigest, KeyColumns, Kind, ListedFile, Provenance, RowDigest, RowKey, StoreDtype,
    seal,
};
use plmkit_store::{EmbeddingsReader, RecordListWriter};
use serde_json::{Value, json};

use crate::common::{all, assert_failed, bin, visible};
use crate::set::{Row, Set, failed, rows, run};

/// A dataset whose part `part(row)` has each row: `parts` files, and `dataset.json`.
pub(crate) fn dataset(set: &Set, parts: usize, part: impl Fn(&Row) -> usize) -> PathBuf {
    let folder = set.path("sample");
    fs::create_dir_all(folder.join("embeddings")).expect("folder");
    let listed = (0..parts).map(|place| {
        let name = format!("embeddings/shard-{place:05}.parquet");
        let rows: Vec<Row> = rows()
            .into_iter()
            .filter(|row| part(row) == place)
            .collect();
        set.embeddings(&format!("sample/{name}"), &rows, StoreDtype::F32);
        let digest = EmbeddingsReader::open(&folder.join(&name)).expect("just written");
        json!({ "file": name, "rows": rows.len(), "digest": digest.digest().to_string() })
    });
    let listed: Vec<Value> = listed.collect();
    list(&folder, "pass", &listed);
    folder
}

fn list(folder: &Path, outcome: &str, files: &[Value]) {
    let text = seal(&json!({
        "contract": "1", "outcome": outcome, "embeddings": files, "records": 30, "rejected": {}
    }));
    fs::write(folder.join("dataset.json"), text).expect("write");
}

pub(crate) fn interleaved(row: &Row) -> usize {
    (row.ordinal * 7 % 3) as usize
}

fn combine(dataset: &Path, out: &Path, options: &[&str]) -> Command {
    let mut combine = bin("query-embeddings");
    combine.arg("combine").arg(dataset).arg("--out").arg(out);
    combine.args(options);
    combine
}

pub(crate) fn succeeded(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    stderr
}

/// Key, id and vector of each row of some files.
fn content(files: &[PathBuf]) -> Vec<((u64, u32), String, Vec<f32>)> {
    let mut content = Vec::new();
    for file in files {
        let mut reader = EmbeddingsReader::open(file).expect("an embeddings file");
        while let Some(batch) = reader.next_batch().expect("sound") {
            let vectors = batch["mean_6"].as_fixed_size_list();
            for (place, row) in KeyColumns::new(&batch).rows().enumerate() {
                let vector = vectors.value(place);
                let vector = vector.as_primitive::<Float32Type>().values().to_vec();
                content.push((row.sort_key(), row.id.to_owned(), vector));
            }
        }
    }
    content
}

pub(crate) fn expected() -> Vec<((u64, u32), String, Vec<f32>)> {
    let rows = rows().into_iter();
    rows.map(|row| ((row.ordinal, row.start), row.id, row.vector))
        .collect()
}

fn parts_of(folder: &Path) -> Vec<PathBuf> {
    let names = visible(&folder.join("embeddings")).into_iter();
    names
        .map(|name| folder.join("embeddings").join(name))
        .collect()
}

#[test]
fn interleaved_parts_become_files_in_the_order_of_the_input() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let new = set.path("new");
    let stderr = succeeded(&run(&mut combine(&sample, &new, &["--rows-per-file", "9"])));
    assert!(stderr.contains("30 rows of 3 parts in 4 files"), "{stderr}");
    assert_eq!(visible(&new), ["dataset.json", "embeddings"]);
    let files = parts_of(&new);
    // The ninth row is the first window of a protein: the second one is in the same file.
    let counts: Vec<usize> = files
        .iter()
        .map(|file| content(std::slice::from_ref(file)).len())
        .collect();
    assert_eq!(counts, [10, 9, 9, 2]);
    assert_eq!(content(&files), expected());
    // The new dataset is judged by itself, and against the shards that it was made of.
    let mut validate = bin("validate-embeddings");
    let (report, _) = set.report(validate.arg("--dataset").arg(&new), 0);
    assert_eq!(failed(&report), Vec::<&str>::new());
    let (report, _) = set.report(&mut set.expecting(&new.join("embeddings")), 0);
    assert_eq!(failed(&report), Vec::<&str>::new());
    // The same again is verified and kept; other options are other work.
    let again = succeeded(&run(&mut combine(&sample, &new, &["--rows-per-file", "9"])));
    assert!(again.contains("already complete"), "{again}");
    let other = run(&mut combine(&sample, &new, &["--rows-per-file", "8"]));
    assert_failed(&other, 73, "the parts or the options are not the same");
    succeeded(&run(&mut combine(
        &sample,
        &new,
        &["--rows-per-file", "8", "--force"],
    )));
    assert_eq!(content(&parts_of(&new)), expected());
    assert_eq!(
        all(&set.path("."))
            .iter()
            .filter(|name| name.contains("plmkit"))
            .count(),
        0
    );
}

#[test]
fn what_a_killed_run_left_is_removed() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let work = set.path(".new.plmkit-combine/embeddings");
    fs::create_dir_all(&work).expect("folder");
    fs::write(work.join("part-00002.parquet"), "cut off").expect("write");
    succeeded(&run(&mut combine(&sample, &set.path("new"), &[])));
    assert_eq!(visible(&set.path("new/embeddings")), ["part-00000.parquet"]);
    assert!(!set.path(".new.plmkit-combine").exists());
}

#[test]
fn only_whole_sound_datasets_are_combined() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let part = sample.join("embeddings/shard-00001.parquet");
    let new = set.path("new");
    let bytes = fs::read(&part).expect("a part");
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    fs::write(&part, &damaged).expect("write");
    let output = run(&mut combine(&sample, &new, &[]));
    assert_failed(&output, 65, "shard-00001.parquet: damaged: bytes");
    fs::remove_file(&part).expect("remove");
    let output = run(&mut combine(&sample, &new, &[]));
    assert_failed(
        &output,
        66,
        "shard-00001.parquet: missing, though dataset.json lists it",
    );
    set.embeddings(
        "sample/embeddings/shard-00001.parquet",
        &rows()[..1],
        StoreDtype::F32,
    );
    let output = run(&mut combine(&sample, &new, &[]));
    assert_failed(&output, 65, "not what dataset.json is the verdict of");
    fs::write(&part, &bytes).expect("write");
    list(&sample, "fail", &[]);
    let output = run(&mut combine(&sample, &new, &[]));
    assert_failed(&output, 65, "its validation failed");
    fs::remove_file(sample.join("dataset.json")).expect("remove");
    let output = run(&mut combine(&sample, &new, &[]));
    assert_failed(&output, 66, "expected dataset.json");
    // A folder of other results is never replaced.
    let sample = dataset(&set, 3, interleaved);
    fs::create_dir(&new).expect("folder");
    fs::write(new.join("thesis.txt"), "").expect("write");
    let output = run(&mut combine(&sample, &new, &["--force"]));
    assert_failed(
        &output,
        73,
        "not a dataset that combine wrote; expected another path",
    );
    assert_eq!(visible(&new), ["thesis.txt"]);
}

#[test]
fn a_record_in_two_parts_is_an_error() {
    let set = Set::new();
    let sample = dataset(&set, 2, |row| usize::from(row.ordinal > 9));
    let twice: Vec<Row> = rows().into_iter().filter(|row| row.ordinal > 8).collect();
    set.embeddings(
        "sample/embeddings/shard-00001.parquet",
        &twice,
        StoreDtype::F32,
    );
    fs::remove_file(sample.join("dataset.json")).expect("remove");
    let mut combine = bin("query-embeddings");
    combine
        .arg("combine")
        .arg(&sample)
        .args(["--format", "npy", "--out"]);
    let output = run(combine.arg(set.path("m.npy")));
    assert_failed(&output, 65, "ordinal 9 'P09': expected every row once");
    assert!(!set.path("m.npy").exists());
}

#[test]
fn rows_are_selected_by_id() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let select = |ids: &str, options: &[&str]| {
        fs::write(set.path("ids.txt"), ids).expect("write");
        let mut select = bin("query-embeddings");
        let list = if ids.contains('>') {
            "--fasta"
        } else {
            "--ids"
        };
        select
            .arg("select")
            .arg(&sample)
            .arg(list)
            .arg(set.path("ids.txt"));
        select
            .arg("--out")
            .arg(set.path("some.parquet"))
            .args(options);
        run(&mut select)
    };
    let some: Vec<_> = expected()
        .into_iter()
        .filter(|row| [3, 9, 20].contains(&row.0.0))
        .collect();
    // A list in any order, or FASTA, as a text editor may save it.
    for ids in [
        "P20\r\nP03\n\nP09\nP03\n",
        "\u{feff}P20\nP03\nP09\n",
        ">P20 x\nMK\n>P09\nP11\n>P03\n",
        "\u{feff}>P20 x\nMK\n>P09\nP11\n>P03\n",
    ] {
        succeeded(&select(ids, &["--force"]));
        assert_eq!(content(&[set.path("some.parquet")]), some);
    }
    let again = succeeded(&select("P03\nP09\nP20\n", &[]));
    assert!(again.contains("already complete"), "{again}");
    assert_failed(&select("P03\n", &[]), 73, "combined was");
    fs::remove_file(set.path("some.parquet")).expect("remove");
    let ids = "P03\nQ1\nP09\nQ2\nP20\n";
    assert_failed(
        &select(ids, &[]),
        1,
        "2 of 5 ids are not in the dataset: 'Q1', 'Q2'",
    );
    assert!(!set.path("some.parquet").exists());
    succeeded(&select(ids, &["--allow-missing"]));
    assert_eq!(content(&[set.path("some.parquet")]), some);
}

#[test]
fn single_proteins_are_looked_up() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let lookup = |ids: &[&str]| {
        let mut lookup = bin("query-embeddings");
        run(lookup.arg("lookup").arg(&sample).args(ids))
    };
    let output = lookup(&["P20", "P09", "--column", "mean_6"]);
    succeeded(&output);
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let keys: Vec<(&Value, &Value)> = lines
        .iter()
        .map(|line| (&line["id"], &line["start"]))
        .collect();
    assert_eq!(json!(keys), json!([["P20", 0], ["P09", 0], ["P09", 20]]));
    let vector: Vec<f32> = serde_json::from_value(lines[0]["mean_6"].clone()).expect("a vector");
    assert_eq!(
        vector,
        rows()
            .iter()
            .find(|row| row.id == "P20")
            .expect("a row")
            .vector
    );
    let output = lookup(&["P20", "Q1"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    assert_failed(&output, 1, "1 of 2 ids are not in the dataset: 'Q1'");
    assert_failed(
        &lookup(&["P20", "--column", "max_6"]),
        65,
        "expected a column 'max_6', found mean_6",
    );
}

/// Writes a list of records of `rows` beside the shards, each with its representative, and returns its entry of the manifest.
pub(crate) fn records(
    set: &Set,
    (name, kind): (&str, Kind),
    rows: &[Row],
    records: &[(u64, u64)],
) -> ListedFile {
    let path = set.path(&format!("sample/shards/{name}"));
    let mut writer = RecordListWriter::create(&path, kind).expect("create");
    for &(ordinal, representative) in records {
        let row = rows
            .iter()
            .find(|row| row.ordinal == ordinal)
            .expect("a row");
        let record = AliasRow {
            key: RowKey {
                ordinal,
                id: &row.id,
                start: 0,
                length: row.length,
                truncated: row.truncated,
                digest: row.digest,
                n_windows: 1,
            },
            description: None,
            dataset: (kind == Kind::Known).then_some(0),
            representative,
        };
        writer.push(&record).expect("push");
    }
    let finished = writer.finish(&Provenance::new("fasta-shard", Vec::new()));
    let (digest, file) = finished.expect("finish");
    file.finish().expect("publish");
    ListedFile::from_rows(name, digest)
}

/// Writes the manifest of a set without shards, and what else is beside it.
pub(crate) fn manifest(
    set: &Set,
    aliases: Option<&ListedFile>,
    known: Option<(ListedFile, RowDigest)>,
) {
    let rejects = "ordinal,id,length,reason\n";
    fs::write(set.path("sample/shards/rejects.csv"), rejects).expect("write");
    let rejects = ByteDigest::compute(rejects.as_bytes()).to_string();
    let mut manifest = json!({
        "contract": "1", "tool": "fasta-shard", "version": "0.1.0", "options": {}, "inputs": [],
        "records": 30, "accepted": 29, "rejected": {}, "rejects_digest": rejects, "aliases": aliases,
        "rows": 27, "residues": 0, "tokens": 0, "changed": {}, "shards": [],
        "lengths": { "min": null, "max": null, "mean": null, "histogram": [] },
    });
    if let Some((list, digest)) = known {
        let mut known = json!(list);
        let digest = digest.to_string();
        known["datasets"] = json!([{ "sample": null, "rows": 1, "digest": digest }]);
        known["work"] = json!({});
        manifest["known"] = known;
    }
    fs::write(set.path("sample/shards/manifest.json"), seal(&manifest)).expect("write");
}

#[test]
fn records_without_a_row_get_that_of_another_record() {
    let set = Set::new();
    fs::create_dir_all(set.path("sample/shards")).expect("folder");
    fs::create_dir_all(set.path("old/embeddings")).expect("folder");
    // Of 4 and 28, records of the dataset have the residues, of 15 a record of an earlier dataset.
    let shared = [(4, 9), (28, 2)];
    let all = rows();
    let in_shards = |row: &Row| ![4, 28, 15].contains(&row.ordinal);
    let folder = dataset(
        &set,
        3,
        |row| if in_shards(row) { interleaved(row) } else { 9 },
    );
    let aliases = records(&set, ("aliases.parquet", Kind::Aliases), &all, &shared);
    let known = records(&set, ("known.parquet", Kind::Known), &all, &[(15, 5)]);
    let earlier: Vec<Row> = all.iter().filter(|row| row.ordinal == 5).cloned().collect();
    let old = set.embeddings("old/embeddings/a.parquet", &earlier, StoreDtype::F32);
    let old = EmbeddingsReader::open(&old).expect("just written").digest();
    manifest(&set, Some(&aliases), Some((known, old)));
    let vectors = |ordinal| {
        let rows = all.iter().filter(move |row| row.ordinal == ordinal);
        rows.map(|row| (row.start, row.vector.clone()))
    };
    let content_of = |left_out: &[u64]| {
        let mut expected = expected();
        expected.retain(|row| ![4, 28, 15].contains(&row.0.0));
        for (ordinal, representative) in [(4, 9), (15, 5), (28, 2)] {
            if !left_out.contains(&ordinal) {
                let rows = vectors(representative);
                let id = format!("P{ordinal:02}");
                expected.extend(rows.map(|(start, vector)| ((ordinal, start), id.clone(), vector)));
            }
        }
        expected.sort_by_key(|row| row.0);
        expected
    };
    let new = set.path("new");
    let distinct = succeeded(&run(&mut combine(&folder, &new, &["--distinct"])));
    for what in [
        "--distinct: 2 records left out",
        "1 record left out, because earlier",
    ] {
        assert!(distinct.contains(what), "{distinct}");
    }
    assert_eq!(content(&parts_of(&new)), content_of(&[4, 28, 15]));
    let aliases = succeeded(&run(&mut combine(&folder, &new, &["--force"])));
    assert!(aliases.contains("1 record left out"), "{aliases}");
    assert_eq!(content(&parts_of(&new)), content_of(&[15]));
    let known = ["--force", "--rows-per-file", "9", "--known"];
    let known = succeeded(&run(combine(&folder, &new, &known).arg(set.path("old"))));
    assert!(!known.contains("left out"), "{known}");
    assert_eq!(content(&parts_of(&new)), content_of(&[]));
    // A dataset that is not the known one.
    let other = run(combine(&folder, &new, &["--force", "--known"]).arg(&folder));
    let expected = format!(
        "expected a dataset that fasta-shard --known knew: without a name of 1 row, {old}; found xxh3"
    );
    assert_failed(&other, 65, &expected);
}
