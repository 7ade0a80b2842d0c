//! The results of many samples as one table, and ids in short.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::common::{assert_failed, bin, command, run, test_data};
use crate::guards::relist;

/// Three samples: `P2` is in two of them, and two records are short for `P3`.
fn results(folder: &Path) {
    for (name, fasta) in [
        (
            "a",
            ">sp|P1|ONE_HUMAN\nMKTAYIAKQR\n>sp|P2|TWO_HUMAN x\nMKVLAAGIVG\n",
        ),
        (
            "b",
            ">sp|P2|TWO_HUMAN x\nMKVLAAGIVG\n>sp|P3|B\nMACDEF\n>plain\nMSTNPK\n",
        ),
        ("c", ">tr|P3|C\nMKKLLP\n>copy\nMKKLLP\n"),
    ] {
        fs::write(folder.join(name).with_extension("fasta"), fasta).expect("write");
    }
    let mut plmkit = bin("plmkit");
    plmkit.args(["a.fasta", "b.fasta", "c.fasta", "--out", "R", "--dedup"]);
    plmkit.args(["--layers", "-1", "--scores"]);
    plmkit.arg("--model").arg(test_data("model-tiny"));
    run(plmkit.current_dir(folder));
}

fn query(folder: &Path, line: &str) -> Output {
    let line = format!("query-embeddings {line}");
    command(folder, &line).output().expect("the program starts")
}

/// The samples and ids that `lookup` prints.
fn looked_up(folder: &Path, line: &str) -> Vec<String> {
    let output = query(folder, &format!("lookup {line} --column mean_4"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let rows = text.lines().map(|line| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| row[name].as_str().expect("text").to_owned();
        text("sample") + " " + &text("id")
    });
    rows.collect()
}

#[test]
fn many_samples_are_one_table() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    results(folder);
    let (one, two) = ("sp|P1|ONE_HUMAN", "sp|P2|TWO_HUMAN");
    let both = [format!("a {two}"), format!("b {two}")];
    assert_eq!(looked_up(folder, &format!("R {two}")), both);
    assert_eq!(
        looked_up(folder, "R plain P2"),
        ["b plain", &both[0], &both[1]]
    );
    assert_eq!(
        looked_up(folder, "R/a TWO_HUMAN P1"),
        [&*both[0], &format!("a {one}")]
    );
    assert_failed(
        &query(folder, "lookup R P2"),
        0,
        "1 id in several samples, with rows of each",
    );
    // A file of them is a dataset: its ordinals go on.
    for line in [
        "select R --id P2 --id plain --out s.parquet",
        "select R --id sp|P2|TWO_HUMAN --id plain --out s.parquet",
        "combine R --distinct --out all",
        "combine R --out all.npy",
        "neighbours R R/b --out n.tsv",
        "neighbours s.parquet R --top 1 --out n.csv",
    ] {
        let output = query(folder, line);
        assert!(output.status.success(), "{line}: {output:?}");
    }
    assert_eq!(looked_up(folder, "s.parquet P2 plain").len(), 3);
    assert_eq!(looked_up(folder, "all plain P1").len(), 2);
    let ids = fs::read_to_string(folder.join("all.ids.txt")).expect("ids");
    assert_eq!(ids.lines().count(), 6);
    let hits = fs::read_to_string(folder.join("n.tsv")).expect("a table");
    assert!(hits.contains("\ta\tb\n"), "{hits}");

    fs::write(
        folder.join("v.csv"),
        "id,variant\nP1,K2A\ncopy,K2A\nC,K2A\n",
    )
    .expect("write");
    let scores = query(folder, "variants R v.csv");
    assert!(scores.status.success(), "{scores:?}");
    let scores = String::from_utf8(scores.stdout).expect("text");
    let scores: Vec<&str> = scores
        .lines()
        .filter_map(|line| line.split(',').nth(2))
        .collect();
    assert!(
        scores[1] != scores[2] && scores[2] == scores[3],
        "{scores:?}"
    );
    fs::write(folder.join("two.csv"), "id,variant\nP2,K2A\n").expect("write");
    let several = "short for 'sp|P3|B' and 'tr|P3|C': expected one of these";
    for (line, code, what) in [
        ("lookup R P3", 65, several),
        ("lookup R sp", 1, "1 of 1 ids are not in the dataset: 'sp'"),
        (
            "select R --id P3 --id P1 --out x.csv --allow-missing",
            65,
            several,
        ),
        (
            "select R --id copy --out x.csv",
            1,
            "1 of them in aliases.parquet",
        ),
        (
            "variants R two.csv",
            65,
            "'sp|P2|TWO_HUMAN' is the id of several records",
        ),
        (
            "peptides R --out x.gff",
            65,
            "expected the folder of one sample",
        ),
        (
            "select R --id P1 --out R/a/embeddings/x.csv",
            2,
            "expected a place outside",
        ),
        (
            "combine R --out all2",
            2,
            "1 record have no rows of their own",
        ),
    ] {
        assert_failed(&query(folder, line), code, what);
    }
    assert!(!folder.join("x.csv").exists());

    // A sample that failed is left out, and listing it is an error.
    relist(&folder.join("R/b"), json!({"outcome": "fail"}));
    let found = query(folder, "lookup R P2");
    assert_failed(
        &found,
        0,
        "R/b: its validation failed, so its rows are left out",
    );
    assert_eq!(looked_up(folder, "R P2"), [&*both[0]]);
    assert_failed(&query(folder, "files R"), 65, "its validation failed");
}

#[test]
fn positions_to_mask_take_short_ids() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    results(folder);
    let masked = |positions: &str| {
        fs::write(folder.join("p.csv"), format!("id,position\n{positions}\n")).expect("write");
        let mut plmkit = bin("plmkit");
        plmkit.args([
            "a.fasta", "b.fasta", "c.fasta", "--out", "M", "--force", "--quiet",
        ]);
        plmkit.args(["--scores=masked", "--scores-positions=p.csv"]);
        plmkit.arg("--model").arg(test_data("model-tiny"));
        plmkit
            .current_dir(folder)
            .output()
            .expect("the program starts")
    };
    let what = "line 2 'P3' '2': 'P3' is short for 'sp|P3|B' and 'tr|P3|C': expected one of these";
    assert_failed(&masked("P3,2"), 65, what);
    assert!(masked("P2,2\nplain,1\nC,1").status.success());
    let found = query(folder, "lookup M P1 P2 --column log_probs");
    let text = String::from_utf8(found.stdout).expect("text");
    let are_masked = text
        .lines()
        .map(|line| line.contains('.'))
        .collect::<Vec<_>>();
    assert_eq!(are_masked, [false, true, true], "{text}");
}

#[test]
fn a_sample_is_no_neighbour_of_itself_in_its_folder() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    results(folder);
    for (line, most) in [("R/b R", 6), ("R R/b", 6), ("R R", 0)] {
        let output = query(folder, &format!("neighbours {line} --out own.tsv --force"));
        assert!(output.status.success(), "{output:?}");
        check_own(folder, most);
    }
}

fn check_own(folder: &Path, most: usize) {
    let own = fs::read_to_string(folder.join("own.tsv")).expect("a table");
    let is_own = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        cells[0] == cells[1] && cells[cells.len() - 1] == cells[cells.len() - 2]
    };
    assert!(
        own.lines().count() > most && !own.lines().any(is_own),
        "{own}"
    );
}
