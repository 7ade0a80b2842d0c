//! Matrices of numpy, by `combine --format npy`. A Python test reads one.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::common::{assert_failed, bin};
use crate::dataset::{dataset, expected, interleaved, succeeded};
use crate::set::{Set, run};

/// Writes the matrix `m.npy` of a dataset.
fn write_matrix(set: &Set, dataset: PathBuf, options: &str) -> Output {
    let mut combine = bin("query-embeddings");
    combine.arg("combine").arg(dataset);
    combine
        .args(["--format", "npy", "--out"])
        .arg(set.path("m.npy"));
    run(combine.args(options.split_whitespace()))
}

#[test]
fn a_matrix_is_written_with_its_ids() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let write = |options| write_matrix(&set, sample.clone(), options);
    succeeded(&write(""));
    let matrix = fs::read(set.path("m.npy")).expect("a matrix");
    assert!(matrix.starts_with(
        b"\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (30, 8), }"
    ));
    let values = expected().into_iter().flat_map(|row| row.2);
    let values: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    assert!(matrix[128..] == values);
    let ids = fs::read_to_string(set.path("m.ids.txt")).expect("ids");
    let expected: String = expected().into_iter().map(|row| row.1 + "\n").collect();
    assert_eq!(ids, expected);
    succeeded(&write(""));
    fs::write(set.path("m.npy"), "mine").expect("write");
    let what = "m.npy: exists, and is a file of other data, which nothing replaces";
    assert_failed(&write("--force"), 73, what);
    fs::write(set.path("m.npy"), b"\x93NUMPY mine").expect("write");
    let what = "m.npy: exists and holds other work (it has other content)";
    assert_failed(&write(""), 73, what);
    succeeded(&write("--force"));
    assert!(fs::read(set.path("m.npy")).expect("a matrix") == matrix);
}

#[test]
fn ids_that_a_killed_run_left_are_taken_over() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let write = |options| write_matrix(&set, sample.clone(), options);
    succeeded(&write(""));
    let files = || ["m.npy", "m.ids.txt"].map(|name| fs::read(set.path(name)).expect(name));
    let expected = files();
    fs::remove_file(set.path("m.npy")).expect("remove");
    succeeded(&write(""));
    assert!(files() == expected);
    // Others are not ours.
    fs::remove_file(set.path("m.npy")).expect("remove");
    fs::write(set.path("m.ids.txt"), "mine\n").expect("write");
    assert_failed(&write(""), 73, "m.ids.txt: exists");
    assert_eq!(fs::read(set.path("m.ids.txt")).expect("ids"), b"mine\n");
    assert!(!set.path("m.npy").exists());
    succeeded(&write("--force"));
    assert!(files() == expected);
}

#[test]
fn one_column_of_vectors_is_named_where_there_are_several() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let write = |options| write_matrix(&set, sample.clone(), options);
    succeeded(&write("--column mean_6"));
    for (options, code, what) in [
        ("--column mean_7", 65, "mean_7"),
        (
            "--known sample",
            2,
            "expected neither --distinct, --known nor --rows-per-file with npy",
        ),
        (
            "--distinct",
            2,
            "expected neither --distinct, --known nor --rows-per-file with npy",
        ),
        (
            "--rows-per-file 7",
            2,
            "expected neither --distinct, --known nor --rows-per-file with npy",
        ),
    ] {
        assert_failed(&write(options), code, what);
    }
    let mut other = bin("query-embeddings");
    other.args(["combine", "sample", "--format", "npy", "--out", "m"]);
    let what = "--out m: expected a name that ends with .npy";
    assert_failed(&run(other.current_dir(set.path("."))), 2, what);
    let mut parquet = bin("query-embeddings");
    parquet.args(["combine", "sample", "--out", "all", "--column", "mean_6"]);
    let what = "--column: expected --format npy, tsv or csv with it";
    assert_failed(&run(parquet.current_dir(set.path("."))), 2, what);
}
