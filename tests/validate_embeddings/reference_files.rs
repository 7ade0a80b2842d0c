//! Which files, columns and rows of a reference are compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use parquet::basic::{Compression, GzipLevel};
use plmkit_contract::StoreDtype;

use crate::common::{assert_failed, bin};
use crate::set::{Row, Set, check, ids, rows, run, vectors};

/// The columns of a reference with these rows.
fn columns(rows: &[Row]) -> [(&'static str, ArrayRef); 3] {
    let starts = Int64Array::from_iter_values(rows.iter().map(|row| i64::from(row.start)));
    [
        ("id", ids(rows)),
        ("start", Arc::new(starts)),
        ("mean_6", vectors(rows, &DataType::Float32)),
    ]
}

fn part(set: &Set, name: &str, rows: &[Row]) -> PathBuf {
    set.parquet(name, &columns(rows), Compression::UNCOMPRESSED)
}

fn compare(embeddings: &Path, reference: &Path, options: &[&str]) -> Command {
    let mut command = bin("validate-embeddings");
    command.arg(embeddings).arg("--reference").arg(reference);
    command.args(options);
    command
}

#[test]
fn files_and_folders_are_one_reference() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let rows = rows();
    fs::create_dir(set.path("parts")).expect("folder");
    part(&set, "parts/a.parquet", &rows[..5]);
    part(&set, "parts/b.parquet", &rows[5..12]);
    fs::write(set.path("parts/notes.txt"), "no Parquet").expect("write");
    let rest = part(&set, "rest.parquet", &rows[12..]);
    let folder = set.path("parts");
    let both = |last: &Path| {
        let mut command = compare(&embeddings, &folder, &[]);
        command.arg(last);
        command
    };
    let (report, _) = set.report(&mut both(&rest), 0);
    let counts = &check(&report, "reference")["counts"];
    assert_eq!(
        (&counts["compared"], &counts["not_in_reference"]),
        (&30.into(), &0.into())
    );
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let [a, b] = ["a.parquet", "b.parquet"].map(|name| text(folder.join(name)));
    assert_eq!(
        report["references"],
        serde_json::json!([a, b, text(rest.clone())])
    );

    let (report, _) = set.report(&mut compare(&embeddings, &rest, &[]), 0);
    assert_eq!(report["references"], serde_json::json!([text(rest)]));
    let mut without = bin("validate-embeddings");
    let (report, _) = set.report(without.arg(&embeddings), 0);
    assert_eq!(report["references"], serde_json::json!([]));

    let doubled = part(&set, "doubled.parquet", &rows[8..]);
    let what = "doubled.parquet: 'P09' from residue 0 is in the reference more than once";
    assert_failed(&run(&mut both(&doubled)), 65, what);
    let twice = part(
        &set,
        "twice.parquet",
        &[&rows[12..], &rows[20..21]].concat(),
    );
    let what = "twice.parquet: 'P20' from residue 0 is in the reference more than once";
    assert_failed(&run(&mut both(&twice)), 65, what);
    let mut short = rows[12..].to_vec();
    for row in &mut short {
        row.vector.truncate(3);
    }
    let what = "short.parquet: 'P12': column 'mean_6': expected 8 values, found 3";
    assert_failed(
        &run(&mut both(&part(&set, "short.parquet", &short))),
        65,
        what,
    );
    let other = [
        ("id", ids(&rows[..1])),
        ("max_6", vectors(&rows[..1], &DataType::Float32)),
    ];
    let other = set.parquet("other.parquet", &other, Compression::UNCOMPRESSED);
    let what = "other.parquet: expected a column 'id' of text or integers and lists mean_6, found columns id, max_6";
    assert_failed(&run(&mut both(&other)), 65, what);
    fs::create_dir(set.path("empty")).expect("folder");
    let empty = compare(&embeddings, &set.path("empty"), &[]);
    assert_failed(
        &run(&mut { empty }),
        66,
        "empty: expected files named *.parquet",
    );
}

#[test]
fn ids_are_text_or_integers_of_any_type() {
    let set = Set::new();
    let numbered = |rows: &[Row]| {
        let ids = (10..).zip(rows).map(|(id, row)| Row {
            id: format!("{id}"),
            ..row.clone()
        });
        ids.collect::<Vec<Row>>()
    };
    let rows = numbered(&rows()[..5]);
    let embeddings = set.embeddings("embeddings.parquet", &rows, StoreDtype::F32);
    let text = ids(&rows);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::LargeUtf8));
    let numbers = Int64Array::from_iter_values((0..5).map(|id| 10 + id));
    for id in [
        cast(&text, &DataType::Utf8View).expect("a view"),
        cast(&text, &dictionary).expect("text"),
        Arc::new(numbers),
    ] {
        let vectors = vectors(&rows, &DataType::Float64);
        let reference = set.reference(&[("id", id), ("any", vectors)]);
        let (report, _) = set.report(&mut compare(&embeddings, &reference, &[]), 0);
        assert_eq!(report["agreement"][0]["compared"], 5);
    }
}

#[test]
fn a_reference_row_that_is_listed_as_rejected_may_be_missing() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let mut theirs = rows()[..3].to_vec();
    theirs[2].id = "P07".to_owned();
    let reference = part(&set, "reference.parquet", &theirs);
    let mut command = set.expecting(&embeddings);
    let (report, _) = set.report(command.arg("--reference").arg(&reference), 0);
    let counts = &check(&report, "reference")["counts"];
    assert_eq!(
        (&counts["compared"], &counts["rejected"]),
        (&2.into(), &1.into())
    );
}

#[test]
fn every_compression_of_parquet_writers_is_read() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    for compression in [
        Compression::GZIP(GzipLevel::default()),
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(parquet::basic::ZstdLevel::default()),
    ] {
        let reference = set.parquet("reference.parquet", &columns(&rows()), compression);
        let (report, _) = set.report(&mut compare(&embeddings, &reference, &[]), 0);
        assert_eq!(check(&report, "reference")["counts"]["compared"], 30);
    }
}
