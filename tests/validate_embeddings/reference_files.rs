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

/// Rows with the ids that `name` makes of theirs.
fn named(rows: &[Row], name: impl Fn(&str) -> String) -> Vec<Row> {
    let mut rows = rows.to_vec();
    for row in &mut rows {
        row.id = name(&row.id);
    }
    rows
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
    let (a, b) = (
        text(folder.join("a.parquet")),
        text(folder.join("b.parquet")),
    );
    assert_eq!(report["reference"], a.as_str());
    assert_eq!(
        report["references"],
        serde_json::json!([a, b, text(rest.clone())])
    );

    let (report, _) = set.report(&mut compare(&embeddings, &rest, &[]), 0);
    assert_eq!(report["reference"], text(rest.clone()).as_str());
    assert_eq!(report["references"], serde_json::json!([text(rest)]));
    let mut without = bin("validate-embeddings");
    let (report, _) = set.report(without.arg(&embeddings), 0);
    assert_eq!(report["reference"], serde_json::Value::Null);
    assert_eq!(report["references"], serde_json::json!([]));

    let doubled = part(&set, "doubled.parquet", &rows[8..]);
    let what = format!("doubled.parquet: 'P09' from residue 0 is in {b}, too");
    assert_failed(&run(&mut both(&doubled)), 65, &what);
    let twice = part(
        &set,
        "twice.parquet",
        &[&rows[12..], &rows[20..21]].concat(),
    );
    let what = "twice.parquet: 'P20' from residue 0 is in it more than once";
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
    let what = "other.parquet: expected a column 'id' and mean_6, found columns id, max_6";
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
fn columns_are_those_that_are_asked_for() {
    let set = Set::new();
    let rows: Vec<Row> = named(&rows()[..5], |id| id.trim_start_matches('P').to_owned());
    let embeddings = set.embeddings("embeddings.parquet", &rows, StoreDtype::F32);
    let mut others = rows.clone();
    for value in others.iter_mut().flat_map(|row| &mut row.vector) {
        *value *= -1.0;
    }
    let numbers = Int64Array::from_iter_values((0..5).map(|id| 10 + id));
    let text = ids(&rows);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::LargeUtf8));
    let reference = set.reference(&[
        ("Entry", Arc::clone(&text)),
        ("number", Arc::new(numbers)),
        ("view", cast(&text, &DataType::Utf8View).expect("a view")),
        ("dictionary", cast(&text, &dictionary).expect("text")),
        ("same", vectors(&rows, &DataType::Float64)),
        ("opposite", vectors(&others, &DataType::Float32)),
    ]);
    for (options, cosine) in [
        ("--reference-id Entry --reference-column same=mean_6", 1.0),
        ("--reference-id view --reference-column same", 1.0),
        (
            "--reference-id dictionary --reference-column opposite=mean_6 --min-cosine -1",
            -1.0,
        ),
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let (report, _) = set.report(&mut compare(&embeddings, &reference, &options), 0);
        assert_eq!(report["agreement"][0]["compared"], 5);
        let found = report["agreement"][0]["min"].as_f64().expect("a cosine");
        assert!((found - cosine).abs() < 1e-6, "{found}");
    }
    let numbered: Vec<Row> = (10..)
        .zip(&rows)
        .map(|(id, row)| Row {
            id: format!("{id}"),
            ..row.clone()
        })
        .collect();
    let numbered = set.embeddings("numbered.parquet", &numbered, StoreDtype::F32);
    let options = [
        "--reference-id",
        "number",
        "--reference-column",
        "same=mean_6",
    ];
    let (report, _) = set.report(&mut compare(&numbered, &reference, &options), 0);
    assert_eq!(report["agreement"][0]["compared"], 5);

    let found = "found columns Entry, number, view, dictionary, same, opposite";
    for (options, code, what) in [
        ("", 65, format!("reference.parquet: expected a column 'id' and lists of floating-point numbers, {found}")),
        ("--reference-id Accession", 65, format!("reference.parquet: expected a column 'Accession' and lists of floating-point numbers, {found}")),
        ("--reference-id Entry --reference-column vector=mean_6", 65, format!("reference.parquet: expected a column 'Entry' and vector, {found}")),
        ("--reference-id Entry", 65, "expected one of mean_6, found same, opposite".to_owned()),
        ("--reference-id Entry --reference-column number=mean_6", 65, "column 'number': expected lists of floating-point numbers".to_owned()),
        ("--reference-id same --reference-column same", 65, "column 'same': expected text or integers".to_owned()),
        ("--reference-id Entry --reference-column same=mean_33", 65, "reference.parquet: column 'same': expected mean_33 in the embeddings to compare it with, found mean_6".to_owned()),
        ("--reference-id Entry --reference-column same=mean_6,opposite", 65, "reference.parquet: column 'opposite': expected a column of its name in the embeddings to compare it with, found mean_6".to_owned()),
        ("--reference-id Entry --reference-column same=mean_6 --reference-column opposite=mean_6", 2, "--reference-column: 'mean_6' is to be compared more than once".to_owned()),
        ("--reference-column same=mean", 2, "such as mean_33, found 'mean'".to_owned()),
        ("--reference-column same=residues_6", 2, "such as mean_33, found 'residues_6'".to_owned()),
        ("--reference-column =mean_6", 2, "expected the name of a column".to_owned()),
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        assert_failed(&run(&mut compare(&embeddings, &reference, &options)), code, &what);
    }
}

#[test]
fn an_accession_names_the_same_protein_on_either_side() {
    let set = Set::new();
    let by_accession = ["--match-by", "accession"];
    let plain = rows();
    let swiss = named(&plain, |id| format!("sp|{id}|{id}_HUMAN"));
    let trembl = named(&plain, |id| format!("tr|{id}|{id}_OTHER"));
    for (ours, theirs) in [(&plain, &swiss), (&swiss, &plain), (&swiss, &trembl)] {
        let embeddings = set.embeddings("embeddings.parquet", ours, StoreDtype::F32);
        let reference = part(&set, "reference.parquet", theirs);
        let (report, _) = set.report(&mut compare(&embeddings, &reference, &by_accession), 0);
        assert_eq!(check(&report, "reference")["counts"]["compared"], 30);
        let (report, _) = set.report(&mut compare(&embeddings, &reference, &[]), 1);
        assert_eq!(check(&report, "reference")["counts"]["compared"], 0);
    }

    let embeddings = set.embeddings("embeddings.parquet", &swiss, StoreDtype::F32);
    let mut isoform = plain[..3].to_vec();
    isoform[1].id = "P01-2".to_owned();
    isoform[2].start = 5;
    let reference = part(&set, "reference.parquet", &isoform);
    let (report, stderr) = set.report(&mut compare(&embeddings, &reference, &by_accession), 1);
    assert_eq!(check(&report, "reference")["counts"]["not_found"], 2);
    assert!(
        stderr.contains("'P01-2': not in the embeddings"),
        "{stderr}"
    );
    let second = &check(&report, "reference")["offenders"][1];
    assert_eq!(
        (&second["id"], &second["start"]),
        (&"P02".into(), &5.into())
    );

    let both = [&plain[3..4], &trembl[3..4]].concat();
    let reference = part(&set, "reference.parquet", &both);
    let what = "reference.parquet: 'tr|P03|P03_OTHER' from residue 0 is in it more than once, also as 'P03'";
    assert_failed(
        &run(&mut compare(&embeddings, &reference, &by_accession)),
        65,
        what,
    );
    let [one, other] = [&plain, &trembl].map(|rows| &rows[3..4]);
    let one = part(&set, "one.parquet", one);
    let other = part(&set, "other.parquet", other);
    let mut command = bin("validate-embeddings");
    command
        .arg(&embeddings)
        .args(by_accession)
        .arg("--reference")
        .args([&one, &other]);
    let what = format!(
        "other.parquet: 'tr|P03|P03_OTHER' from residue 0 is in {}, as 'P03', too",
        one.display()
    );
    assert_failed(&run(&mut command), 65, &what);
}

#[test]
fn a_reference_row_that_is_listed_as_rejected_may_be_missing() {
    let set = Set::new();
    let ours = named(&rows(), |id| format!("sp|{id}|{id}_HUMAN"));
    set.shard("shard.parquet", &ours);
    let embeddings = set.embeddings("embeddings.parquet", &ours, StoreDtype::F32);
    let list = "ordinal,id,length,reason\n7,sp|P07|P07_HUMAN,0,empty\n";
    fs::write(set.path("rejects.csv"), list).expect("write");
    let mut theirs = rows()[..3].to_vec();
    theirs[2].id = "P07".to_owned();
    let reference = part(&set, "reference.parquet", &theirs);
    let mut command = set.expecting(&embeddings);
    command.args(["--match-by", "accession", "--reference"]);
    let (report, _) = set.report(command.arg(&reference), 0);
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

#[test]
fn a_lenient_cosine_is_at_most_the_least_cosine() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let lenient = |cosine| {
        [
            "--min-cosine",
            "0.99",
            "--lenient-share",
            "1%",
            "--lenient-cosine",
            cosine,
        ]
    };
    let output = run(&mut compare(&embeddings, &embeddings, &lenient("0.995")));
    let what = "--lenient-cosine 0.995: expected at most --min-cosine, which is 0.99";
    assert_failed(&output, 2, what);
    set.report(&mut compare(&embeddings, &embeddings, &lenient("0.99")), 0);
}
