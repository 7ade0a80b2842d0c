//! What commands on datasets leave alone: lists that were altered, files of the user, links, other proteins.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use plmkit_contract::{ByteDigest, StoreDtype};
use serde_json::json;

use crate::common::{all, assert_failed, tree, visible};
use crate::dataset::{dataset, interleaved, succeeded};
use crate::guards::{relist, tool};
use crate::set::{Set, rows};

const REJECTS: &str = "ordinal,id,length,reason\n7,P07,0,empty\n";

/// Lists `file` in the folder of a dataset as its only list of rejects.
fn list_rejects(folder: &Path, file: &str) {
    fs::create_dir_all(folder.join("rejects")).expect("folder");
    fs::write(folder.join(file), REJECTS).expect("write");
    let digest = ByteDigest::compute(REJECTS.as_bytes()).to_string();
    let list = json!([{ "file": file, "rows": 1, "digest": digest }]);
    relist(folder, json!({ "rejects": list }));
}

#[test]
fn a_list_that_was_altered_or_lost_is_no_list_of_the_dataset() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    list_rejects(&sample, "rejects/a.csv");
    let [combine, of_parts] = ["combine sample --out new", "--dataset sample"];
    succeeded(&tool(&set, combine));
    succeeded(&tool(&set, of_parts));
    for (line, list) in [
        ("combine sample --out other", "sample/rejects/a.csv"),
        (of_parts, "sample/rejects/a.csv"),
        // The rerun says that every file was verified.
        (combine, "new/rejects/records.csv"),
        ("--dataset new", "new/rejects/records.csv"),
    ] {
        let path = set.path(list);
        let text = fs::read_to_string(&path).expect("a list");
        for altered in [text.replace("P07", "P08"), text.replace("empty", "emptx")] {
            fs::write(&path, altered).expect("write");
            assert_failed(&tool(&set, line), 65, &format!("{list}: "));
        }
        fs::remove_file(&path).expect("remove");
        assert_failed(&tool(&set, line), 66, &format!("{list}: "));
        fs::write(&path, text).expect("write");
        assert_eq!(visible(&set.path("new/rejects")), ["records.csv"]);
        assert!(!set.path("other").exists());
    }
    let again = succeeded(&tool(&set, combine));
    assert!(again.contains("every file verified"), "{again}");
}

#[test]
fn what_other_work_left_unfinished_is_not_published() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    succeeded(&tool(&set, "combine sample --out whole"));
    list_rejects(&sample, "rejects/a.csv");
    succeeded(&tool(&set, "combine sample --out other"));
    // As if this run had been killed just before its folder got its name.
    fs::rename(set.path("other"), set.path(".new.plmkit-combine")).expect("rename");
    fs::remove_dir_all(sample.join("rejects")).expect("remove");
    relist(&sample, json!({ "rejects": [] }));
    succeeded(&tool(&set, "combine sample --out new"));
    assert!(tree(&set.path("new")) == tree(&set.path("whole")));
    // Killed between the two renames that replace a folder.
    fs::rename(set.path("new"), set.path(".new.plmkit-old")).expect("rename");
    succeeded(&tool(&set, "combine sample --out new --force"));
    assert!(!set.path(".new.plmkit-old").exists());
}

#[test]
fn combine_removes_only_what_it_wrote() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    list_rejects(&sample, "rejects/a.csv");
    succeeded(&tool(&set, "combine sample --out new"));
    let force = "combine sample --out new --force --rows-per-file 7";
    for name in [
        "notes.txt",
        "embeddings/x.parquet",
        "rejects/a.csv",
        "mine/b",
    ] {
        let path = set.path("new").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        fs::write(&path, "mine").expect("write");
        let before = tree(&set.path("new"));
        let named = name.split_once("/b").map_or(name, |(folder, _)| folder);
        let what = format!("--force would remove new/{named}, which combine did not write");
        assert_failed(&tool(&set, force), 73, &what);
        assert!(tree(&set.path("new")) == before, "{name}");
        fs::remove_file(&path).expect("remove");
        let _ = fs::remove_dir(set.path("new/mine"));
    }
    succeeded(&tool(&set, force));
}

#[test]
fn a_link_to_a_folder_is_followed() {
    let set = Set::new();
    dataset(&set, 3, interleaved);
    fs::create_dir(set.path("disk")).expect("folder");
    for link in ["link", "link.npy"] {
        symlink("disk/new", set.path(link)).expect("link");
    }
    let before = all(&set.path("."));
    for line in [
        "combine sample --out link",
        "select sample --id P20 --out link",
        "combine sample --format npy --out link.npy",
    ] {
        let link = line.rsplit(' ').next().expect("a word");
        assert_failed(&tool(&set, line), 73, &format!("{link}: cannot create"));
        assert_eq!(all(&set.path(".")), before, "{line}");
        assert!(visible(&set.path("disk")).is_empty());
    }
    fs::create_dir(set.path("disk/new")).expect("folder");
    for line in [
        "combine sample --out link",
        "combine sample --out link --force --rows-per-file 7",
    ] {
        succeeded(&tool(&set, line));
        assert!(set.path("link").is_symlink());
        assert_eq!(
            visible(&set.path("disk/new")),
            ["dataset.json", "embeddings"]
        );
    }
    assert_eq!(visible(&set.path("disk")), ["new"]);
}

#[test]
fn no_output_is_among_the_files_of_a_dataset() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    fs::create_dir(sample.join("rejects")).expect("folder");
    symlink("sample/embeddings", set.path("parts")).expect("link");
    let part = "sample/embeddings/shard-00000.parquet";
    let outputs = |folder: &str| {
        [
            format!("select {folder} --id P20 --out"),
            format!("combine {folder} --format npy --out"),
            format!("combine {folder} --out"),
        ]
    };
    let refused = |line: &str| {
        let before = tree(&set.path("."));
        assert_failed(&tool(&set, line), 2, "expected a place outside");
        assert!(tree(&set.path(".")) == before, "{line}");
    };
    for line in outputs("sample") {
        refused(&format!("{line} sample/embeddings/x.parquet"));
        refused(&format!("{line} parts/x.parquet"));
        refused(&format!("{line} sample/rejects/x"));
    }
    refused(&format!("select {part} --id P20 --out parts/x.parquet"));
    fs::remove_file(sample.join("dataset.json")).expect("remove");
    for line in &outputs("sample")[..2] {
        refused(&format!("{line} sample/embeddings/x.parquet"));
    }
    succeeded(&tool(&set, "select sample --id P20 --out sample/x.parquet"));
}

#[test]
fn an_id_stands_as_it_is() {
    let set = Set::new();
    let mut rows = rows();
    rows.retain(|row| row.start == 0);
    let odd = [">P20", "\u{feff}P20", ">>P20", "P20 x"];
    for (row, id) in rows.iter_mut().zip(odd) {
        id.clone_into(&mut row.id);
    }
    set.embeddings("all.parquet", &rows, StoreDtype::F32);
    let selected = |text: &str, options: &str| {
        fs::write(set.path("list"), text).expect("write");
        let line = format!("select all.parquet --out some.parquet --force {options}");
        succeeded(&tool(&set, &line));
        let found = tool(&set, "lookup some.parquet P20 >P20 >>P20 \u{feff}P20");
        let found = String::from_utf8(found.stdout).expect("text");
        let ids = found.lines().map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            row["id"].as_str().expect("an id").to_owned()
        });
        ids.collect::<Vec<String>>()
    };
    for (text, option, expected) in [
        (">P20\nP20\n", "--ids list", &["P20", ">P20"][..]),
        (">P20\n", "--ids list", &[">P20"]),
        // The first mark is of the file, the second of the id.
        ("\u{feff}P20\n", "--ids list", &["P20"]),
        ("\u{feff}\u{feff}P20\n", "--ids list", &["\u{feff}P20"]),
        (">P20 x\nMK\n", "--fasta list", &["P20"]),
        (">>P20\nMK\n", "--fasta list", &[">P20"]),
        ("\u{feff}>P20\nMK\n", "--fasta list", &["P20"]),
    ] {
        assert_eq!(selected(text, option), expected, "{text:?}");
    }
    // FASTA is no list of ids, even where some may be missing.
    fs::write(set.path("list"), ">P21 x\nMK\n").expect("write");
    let line = "select all.parquet --ids list --allow-missing --out none.parquet";
    let what = "'>P21 x', 'MK'; --fasta takes the ids of a FASTA file";
    assert_failed(&tool(&set, line), 1, what);
    assert!(!set.path("none.parquet").exists());
}
