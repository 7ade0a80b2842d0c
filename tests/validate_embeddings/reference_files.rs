//! Which files, columns and rows of a reference are compared.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use parquet::basic::{Compression, GzipLevel};
use plmkit_contract::StoreDtype;

use crate::common::bin;
use crate::set::{Row, Set, check, ids, rows, vectors};

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
        assert_eq!(report["agreement"][0]["vectors"], 5);
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
