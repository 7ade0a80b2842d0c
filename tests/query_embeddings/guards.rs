//! Commands on datasets leave their inputs as they are, take only what `dataset.json` lists, and say what they leave out.

use std::fs;
use std::path::Path;
use std::process::Output;

use plmkit_contract::{Kind, RowDigest, StoreDtype, seal};
use serde_json::{Value, json};

use crate::common::{assert_failed, bin, visible};
use crate::dataset::{dataset, interleaved, manifest, records, succeeded};
use crate::set::{Set, rows, run};

/// Runs `query-embeddings` with these words in the folder of the set; if they begin with an option, `validate-embeddings`.
pub(crate) fn tool(set: &Set, line: &str) -> Output {
    let program = if line.starts_with("--") {
        "validate-embeddings"
    } else {
        "query-embeddings"
    };
    let mut tool = bin(program);
    run(tool.current_dir(set.path(".")).args(line.split(' ')))
}

/// Changes entries of the `dataset.json` in `folder`.
pub(crate) fn relist(folder: &Path, entries: Value) {
    let path = folder.join("dataset.json");
    let text = fs::read(&path).expect("a list");
    let mut list: Value = serde_json::from_slice(&text).expect("JSON");
    let Value::Object(entries) = entries else {
        panic!("entries")
    };
    let list_entries = list.as_object_mut().expect("entries");
    list_entries.remove("seal");
    list_entries.extend(entries);
    fs::write(path, seal(&list)).expect("write");
}

#[test]
fn a_table_replaces_its_like_alone() {
    let set = Set::new();
    dataset(&set, 3, interleaved);
    for (line, out) in [
        ("neighbours sample sample --top 2", "t.tsv"),
        ("select sample --id P20", "t.csv"),
    ] {
        let write = |options: &str| tool(&set, &format!("{line} --out {out}{options}"));
        succeeded(&write(""));
        succeeded(&write(" --force"));
        let own = fs::read_to_string(set.path(out)).expect("a table");
        let (header, rows) = own.split_once('\n').expect("a header");
        let separator = if out.ends_with("tsv") { "\t" } else { "," };
        let labelled = rows.replace('\n', &format!("{separator}mine\n"));
        for text in [
            // Far behind the beginning.
            format!("{own}{}my note\n", rows.repeat(1 + 100_000 / rows.len())),
            format!("{header}{separator}label\n{labelled}"),
            format!("query{separator}target{separator}bits\na{separator}b{separator}1\n"),
            "{\"my\": 1}\n".to_owned(),
        ] {
            fs::write(set.path(out), &text).expect("write");
            assert_failed(&write(" --force"), 73, "which nothing replaces");
            assert!(fs::read_to_string(set.path(out)).expect("read") == text);
        }
    }
}

#[test]
fn no_output_is_an_input() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    set.embeddings("one.ids.txt", &rows(), StoreDtype::F32);
    fs::write(set.path("ids"), "P20\n").expect("write");
    fs::write(set.path("fasta"), ">P20\n").expect("write");
    fs::create_dir(sample.join("shards")).expect("folder");
    manifest(&set, None, None);
    fs::hard_link(
        sample.join("embeddings/shard-00001.parquet"),
        set.path("linked"),
    )
    .expect("link");
    let files = [
        "sample/dataset.json",
        "sample/shards/manifest.json",
        "sample/embeddings/shard-00001.parquet",
        "linked",
    ];
    let mut lines = vec![
        "combine one.ids.txt --format npy --out one.npy --force".to_owned(),
        "select one.ids.txt --id P20 --out one.ids.txt --format parquet --force".to_owned(),
        "select sample --ids ids --out ids --force".to_owned(),
        "select sample --fasta fasta --out fasta --force".to_owned(),
    ];
    for file in files {
        lines.push(format!("combine sample --format npy --out {file} --force"));
        lines.push(format!(
            "select sample --id P20 --format parquet --out {file} --force"
        ));
    }
    let read = || {
        let files = files.iter().chain(&["one.ids.txt", "ids", "fasta"]);
        let files: Vec<Vec<u8>> = files
            .map(|file| fs::read(set.path(file)).expect(file))
            .collect();
        files
    };
    let before = read();
    for line in lines {
        assert_failed(&tool(&set, &line), 2, "are the same file");
        assert!(read() == before, "{line}");
    }
}

#[test]
fn combine_replaces_no_dataset_that_it_reads() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    succeeded(&tool(&set, "combine sample --out old"));
    fs::rename(&sample, set.path("old/sample")).expect("rename");
    for line in [
        "combine old/sample --known old --out old --force",
        "combine old/sample --out old --force",
        "combine old --known old/embeddings/part-00000.parquet --out ./old --force",
    ] {
        assert_failed(&tool(&set, line), 2, "old: is or contains the dataset old");
        let left = visible(&set.path("old"));
        assert_eq!(left, ["dataset.json", "embeddings", "sample"]);
    }
}

#[test]
fn parts_must_be_those_of_the_list() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let part = "sample/embeddings/shard-00001.parquet";
    let lines = [
        "combine sample --format npy --out m.npy",
        "select sample --id P20 --out p.parquet",
        "lookup sample P20",
    ];
    let refused = |what: &str| {
        for line in lines {
            let output = tool(&set, line);
            assert_failed(&output, 65, what);
            assert!(output.stdout.is_empty());
        }
        assert!(!set.path("m.npy").exists() && !set.path("p.parquet").exists());
    };
    let other: Vec<_> = rows().into_iter().filter(|row| row.ordinal == 20).collect();
    set.embeddings(part, &other, StoreDtype::F32);
    refused(
        "shard-00001.parquet: not what dataset.json is the verdict of: expected rows xxh3-128-sum:",
    );
    fs::remove_dir_all(&sample).expect("remove");
    let sample = dataset(&set, 3, interleaved);
    let list = json!({ "file": "rejects/a.csv", "rows": 1, "digest": "xxh3-128:00" });
    relist(&sample, json!({ "rejects": [list] }));
    for line in lines {
        let what = "sample/rejects/a.csv: cannot open: no such file";
        assert_failed(&tool(&set, line), 66, what);
    }
    // Without a list, parts are compared with each other.
    fs::remove_file(sample.join("dataset.json")).expect("remove");
    set.embeddings(part, &other, StoreDtype::F16);
    refused("shard-00001.parquet: expected the columns of ");
    let missing = tool(&set, "combine nowhere --format npy --out m.npy");
    assert_failed(&missing, 66, "nowhere: no such file or folder");
}

#[test]
fn a_file_has_the_format_that_its_name_says() {
    let set = Set::new();
    dataset(&set, 3, interleaved);
    for (line, out) in [
        ("neighbours sample sample", "n.npy"),
        ("select sample --id P20", "s.xlsx"),
    ] {
        let what = format!("--out {out}: its name ends with no known format: expected another");
        assert_failed(&tool(&set, &format!("{line} --out {out}")), 2, &what);
        assert!(!set.path(out).exists());
        succeeded(&tool(&set, &format!("{line} --out {out} --format csv")));
    }
}

#[test]
fn a_dataset_that_failed_is_not_passed_on() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    relist(&sample, json!({ "outcome": "fail" }));
    let what =
        "sample/dataset.json: its validation failed: expected a dataset whose validation passed";
    for line in [
        "combine sample --format npy --out m.npy",
        "select sample --id P20 --out p.parquet",
        "combine sample --out c",
        "combine sample --known sample --out c",
    ] {
        assert_failed(&tool(&set, line), 65, what);
    }
    // Its rows may be looked at.
    let output = tool(&set, "lookup sample P20");
    assert!(succeeded(&output).contains(&format!("warning: {what}")));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);

    // With shards and without a verdict, rows may be missing.
    fs::remove_file(sample.join("dataset.json")).expect("remove");
    fs::create_dir_all(sample.join("shards")).expect("folder");
    let output = tool(&set, "lookup sample P20");
    assert!(succeeded(&output).contains("sample: not validated, so rows may be missing"));
}

#[test]
fn records_without_a_row_are_not_left_out_silently() {
    let set = Set::new();
    let in_shards = |ordinal| ![4, 28, 15].contains(&ordinal);
    let folder = dataset(&set, 3, |row| {
        if in_shards(row.ordinal) {
            interleaved(row)
        } else {
            9
        }
    });
    fs::create_dir_all(set.path("sample/shards")).expect("folder");
    let shared = [(4, 9), (28, 7)];
    let aliases = records(&set, ("aliases.parquet", Kind::Aliases), &rows(), &shared);
    manifest(&set, Some(&aliases), None);
    let matrix = "combine sample --format npy --out m.npy --force";
    assert!(!succeeded(&tool(&set, matrix)).contains("left out"));
    relist(&folder, json!({ "aliases": 2, "known": 1 }));
    let what =
        "warning: m.npy: 3 records left out, because other records or datasets have their residues";
    assert!(succeeded(&tool(&set, matrix)).contains(what));

    let missing = |ids: &str, what: &str| {
        let select = format!("select sample --id {ids} --out p.parquet");
        assert_failed(&tool(&set, &select.replace(',', " --id ")), 1, what);
        let lookup = format!("lookup sample {}", ids.replace(',', " "));
        assert_failed(&tool(&set, &lookup), 1, what);
    };
    missing(
        "P20,P04",
        "1 of 2 ids are not in the dataset: 'P04'; 1 of them in aliases.parquet, because other records have their residues: query-embeddings combine gives them rows",
    );
    // The representative was rejected.
    missing("P28,Q1", "1 of them in aliases.parquet");
    let known = records(&set, ("known.parquet", Kind::Known), &rows(), &[(15, 5)]);
    manifest(&set, Some(&aliases), Some((known, RowDigest::default())));
    missing(
        "P15,Q1",
        "2 of 2 ids are not in the dataset: 'P15', 'Q1'; 1 of them in known.parquet, because other records have their residues: query-embeddings combine --known gives them rows",
    );
}
