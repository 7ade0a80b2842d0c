//! What lies at a path decides what it is, however the path is spelled.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use plmkit_contract::StoreDtype;
use serde_json::json;

use crate::common::{assert_failed, bin};
use crate::dataset::{dataset, interleaved, succeeded};
use crate::guards::relist;
use crate::set::{Set, rows, run};

/// Lists the files at a path, as seen from a folder.
fn files(set: &Set, folder: &str, path: &str) -> Output {
    let mut files = bin("query-embeddings");
    run(files.args(["files", path]).current_dir(set.path(folder)))
}

/// The number of files that are listed.
fn listed(output: &Output) -> usize {
    succeeded(output);
    String::from_utf8_lossy(&output.stdout).lines().count()
}

#[test]
fn a_dataset_is_one_by_any_path() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    fs::create_dir(set.path("links")).expect("folder");
    for (link, target) in [
        ("results", ".."),
        ("renamed", "../sample"),
        ("vectors", "../sample/embeddings"),
        ("verdict", "../sample/dataset.json"),
    ] {
        symlink(target, set.path("links").join(link)).expect("link");
    }
    let paths = [
        (".", "."),
        (".", "sample/."),
        (".", "sample/embeddings/../.."),
        (".", "sample/dataset.json"),
        (".", "links/results"),
        (".", "links/renamed"),
        (".", "links/vectors"),
        (".", "links/verdict"),
        ("sample", "."),
        ("sample", "embeddings"),
        ("sample/embeddings", "."),
        ("sample/embeddings", "../embeddings/"),
        ("links/vectors", ".."),
    ];
    let each = |see: &dyn Fn(&str, Output)| {
        for (folder, path) in paths {
            see(path, files(&set, folder, path));
        }
    };
    each(&|path, output| assert_eq!(listed(&output), 3, "{path}"));
    // The other commands, too, see the dataset.
    for path in ["links/vectors", "links/verdict", "sample/embeddings/."] {
        let folder = set.path(".");
        let lookup = |program: &str, words: &[&str]| -> Command {
            let mut command = bin(program);
            command.args(words).current_dir(&folder);
            command
        };
        succeeded(&run(&mut lookup(
            "query-embeddings",
            &["lookup", path, "P20"],
        )));
        succeeded(&run(&mut lookup(
            "validate-embeddings",
            &["--dataset", path],
        )));
    }
    let part = sample.join("embeddings/shard-00001.parquet");
    let bytes = fs::read(&part).expect("a part");
    fs::remove_file(&part).expect("remove");
    let what = "embeddings/shard-00001.parquet: missing, though dataset.json lists it";
    each(&|_, output| assert_failed(&output, 66, what));
    for at in (0..bytes.len()).step_by(bytes.len() / 12) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(&part, damaged).expect("write");
        for (folder, path) in [
            (".", "."),
            ("sample/embeddings", "."),
            (".", "links/vectors"),
        ] {
            assert_failed(&files(&set, folder, path), 65, "shard-00001.parquet: ");
        }
    }
    fs::write(&part, bytes).expect("write");
    relist(&sample, json!({ "outcome": "fail" }));
    each(&|_, output| assert_failed(&output, 65, "dataset.json: its validation failed"));
    fs::rename(sample.join("embeddings"), sample.join("other")).expect("rename");
    let output = files(&set, "sample", "other");
    assert_eq!(listed(&output), 3);
    assert!(succeeded(&output).contains("warning: other: not validated"));
}

#[test]
fn files_that_are_no_table_are_refused() {
    let set = Set::new();
    dataset(&set, 3, interleaved);
    // Rows that are among the embeddings of no sample.
    fs::create_dir(set.path("embeddings")).expect("folder");
    let stray = set.embeddings("embeddings/a.parquet", &rows()[..1], StoreDtype::F32);
    assert_eq!(listed(&files(&set, ".", ".")), 3);
    fs::copy(&stray, set.path("embeddings/b.parquet")).expect("copy");
    let twice = "embeddings/b.parquet: rows may be in several folders";
    fs::write(set.path("summary.tsv"), "sample\tcount\n").expect("write");
    fs::create_dir_all(set.path("more/cut/shards")).expect("folder");
    symlink("../sample", set.path("more/sample")).expect("link");
    fs::create_dir_all(set.path("large/sample/embeddings")).expect("folder");
    let large = fs::File::create(set.path("large/summary.tsv"));
    large
        .and_then(|file| file.set_len(1 << 29))
        .expect("a sparse file");
    fs::create_dir_all(set.path("dangling/sample/embeddings")).expect("folder");
    symlink("nothing", set.path("dangling/summary.tsv")).expect("link");
    let pipe = Command::new("mkfifo").arg(set.path("pipe")).status();
    assert!(pipe.expect("mkfifo").success());
    for (path, code, what) in [
        ("embeddings", 65, twice),
        ("pipe", 66, "pipe: cannot open: not a directory"),
        (".", 65, "summary.tsv: expected the table of samples"),
        ("large", 65, "large/summary.tsv: expected at most"),
        ("links", 66, "links: cannot open"),
        ("dangling", 66, "dangling/summary.tsv: cannot open"),
        (
            "more",
            66,
            "more/cut: expected the folder of one sample's results",
        ),
    ] {
        let output = files(&set, ".", path);
        assert_eq!(output.status.code(), Some(code));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(what), "{said}");
        assert!(output.stdout.is_empty());
    }
}
