//! Exports of datasets. The Python tests read them with the libraries of their formats.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use plmkit_contract::StoreDtype;

use crate::common::{all, assert_failed, bin};
use crate::dataset::{dataset, expected, interleaved, succeeded};
use crate::set::{Row, Set, rows, run};

/// Exports a dataset of these rows to the file `out`.
fn export(set: &Set, rows: &[Row], out: &str, options: &str) -> Output {
    let path = set.embeddings("rows.parquet", rows, StoreDtype::F32);
    export_from(set, path, out, options)
}

fn export_from(set: &Set, dataset: PathBuf, out: &str, options: &str) -> Output {
    let mut export = bin("validate-embeddings");
    export.arg("export").arg(dataset).arg("--out");
    run(export.arg(set.path(out)).args(options.split(' ')))
}

#[test]
fn a_matrix_is_exported_with_its_ids() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let export = |options| export_from(&set, sample.clone(), "m.npy", options);
    succeeded(&export("--format npy"));
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
    succeeded(&export("--format npy"));
    let others = export("--format npy --dtype f16");
    assert_failed(
        &others,
        73,
        "m.npy: exists and holds other work (it has other content)",
    );
    assert!(fs::read(set.path("m.npy")).expect("a matrix") == matrix);
    succeeded(&export("--format npy --force --dtype f16"));
    assert_eq!(
        fs::read(set.path("m.npy")).expect("a matrix").len(),
        128 + 30 * 8 * 2
    );
}

#[test]
fn ids_that_a_killed_run_left_are_taken_over() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    let export = |options| export_from(&set, sample.clone(), "m.npy", options);
    succeeded(&export("--format npy"));
    let files = || ["m.npy", "m.ids.txt"].map(|name| fs::read(set.path(name)).expect(name));
    let expected = files();
    fs::remove_file(set.path("m.npy")).expect("remove");
    succeeded(&export("--format npy"));
    assert!(files() == expected);
    // Others are not ours.
    fs::remove_file(set.path("m.npy")).expect("remove");
    fs::write(set.path("m.ids.txt"), "mine\n").expect("write");
    assert_failed(&export("--format npy"), 73, "m.ids.txt: exists");
    assert_eq!(fs::read(set.path("m.ids.txt")).expect("ids"), b"mine\n");
    assert!(!set.path("m.npy").exists());
    succeeded(&export("--format npy --force"));
    assert!(files() == expected);
}

#[test]
fn what_cannot_be_exported_leaves_the_old_file() {
    let mut rows = rows();
    let each = "--format hdf5 --per-protein";
    let set = Set::new();
    let cases = [
        (
            "ordinal 9 'P09': expected one row for each id, found two",
            each,
            None,
        ),
        (
            "ordinal 3 'a/b': names of HDF5 have no /",
            each,
            Some("a/b"),
        ),
        (
            "ordinal 3 '.': in HDF5, this is the name of the file's own group",
            each,
            Some("."),
        ),
        (
            "ordinal 4 'P04': 70000 does not fit into f16",
            "--format hdf5 --dtype f16",
            None,
        ),
        (
            "ordinal 4 'P04': 70000 does not fit into f16",
            "--format h5ad --dtype f16",
            None,
        ),
    ];
    rows[4].vector[3] = 70000.0;
    for (what, options, id) in cases {
        let mut rows = rows.clone();
        if let Some(id) = id {
            rows[3].id = id.to_owned();
        }
        assert_failed(&export(&set, &rows, "e.h5", options), 65, what);
        assert!(!set.path("e.h5").exists());
        fs::write(set.path("e.h5"), "old").expect("write");
        for force in ["", " --force"] {
            let again = export(&set, &rows, "e.h5", &format!("{options}{force}"));
            assert_failed(&again, 65, what);
        }
        assert_eq!(fs::read(set.path("e.h5")).expect("the old file"), b"old");
        fs::remove_file(set.path("e.h5")).expect("remove");
    }
    let options = format!("{each} --columns mean_6,mean_6");
    assert_failed(
        &export(&set, &rows, "e.h5", &options),
        2,
        "expected one column for this format",
    );
    let left = all(&set.path("."));
    assert!(left.iter().all(|name| !name.contains("plmkit")), "{left:?}");
}

#[test]
fn exports_are_the_same_whatever_the_parts() {
    let set = Set::new();
    let sample = dataset(&set, 3, interleaved);
    for format in ["hdf5", "h5ad"] {
        let options = format!("--format {format}");
        succeeded(&export(&set, &rows(), &format!("one.{format}"), &options));
        let out = format!("parts.{format}");
        succeeded(&export_from(&set, sample.clone(), &out, &options));
        let [one, parts] = ["one", "parts"]
            .map(|name| fs::read(set.path(&format!("{name}.{format}"))).expect("a file"));
        assert!(one.starts_with(b"\x89HDF\r\n\x1a\n"));
        assert!(one == parts, "{format}");
    }
}
