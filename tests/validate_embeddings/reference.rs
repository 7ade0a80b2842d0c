//! Agreement with a reference.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    ArrayRef, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, LargeListArray,
    LargeStringArray, ListArray, StringArray, StringViewArray,
};
use arrow_schema::{DataType, Field};
use parquet::basic::{Compression, GzipLevel};
use plmkit_contract::StoreDtype;

use crate::common::{assert_fails, bin, embed, pack, run as succeed, shard, test_data};
use crate::set::{Row, Set, check, failed, ids, rows, vectors};

fn compare(embeddings: &Path, reference: &Path, options: &[&str]) -> Command {
    let mut command = bin("validate-embeddings");
    command.arg(embeddings).arg("--reference").arg(reference);
    command.args(options);
    command
}

/// A change of the embeddings.
type Change = fn(&mut Vec<Row>);

/// What is counted of the first nine proteins, of which P07 was rejected, beside their own vectors: the check, the kind and how often.
/// Then what was changed, and after a colon what is said of it.
const DIFFERENCES: [(&str, &str, u64, &str, Change); 9] = [
    ("", "not_in_reference", 22, "nothing", |_| {}),
    ("", "rejected", 1, "nothing", |_| {}),
    ("", "compared", 8, "three hundredths longer", |rows| {
        rows[1].vector.iter_mut().for_each(|value| *value *= 1.03);
    }),
    ("reference", "below", 2, "vectors swapped", |rows| {
        let first = rows[1].vector.clone();
        rows[1].vector = std::mem::replace(&mut rows[2].vector, first);
    }),
    (
        "reference",
        "below",
        1,
        "another direction: ordinal 1 'P01': mean_6: cosine -1.0000000, expected at least 0.999",
        |rows| rows[1].vector.iter_mut().for_each(|value| *value *= -1.0),
    ),
    (
        "reference",
        "other_norm",
        1,
        "twice as long: ordinal 1 'P01': mean_6: 2.000000 times as long as in the reference, expected 1 ± 4.47e-2",
        |rows| rows[1].vector.iter_mut().for_each(|value| *value *= 2.0),
    ),
    (
        "zero reference",
        "undefined",
        1,
        "zero: ordinal 1 'P01': mean_6: no cosine",
        |rows| rows[1].vector.fill(0.0),
    ),
    (
        "reference",
        "other_dimension",
        8,
        "other dimensions: mean_6: the reference has 8 values, the embeddings have 4",
        |rows| {
            for row in rows {
                row.vector.truncate(4);
            }
        },
    ),
    (
        "coverage reference",
        "not_found",
        1,
        "a row missing: 'P01': not in the embeddings",
        |rows| drop(rows.remove(1)),
    ),
];

#[test]
fn each_difference_from_the_reference_is_counted_and_said() {
    let set = Set::new();
    let mut theirs = rows()[..8].to_vec();
    theirs.push(Row {
        id: "P07".to_owned(),
        ..theirs[0].clone()
    });
    let reference = set.reference(&[
        ("id", ids(&theirs)),
        ("mean_6", vectors(&theirs, &DataType::Float32)),
    ]);
    for (checks, kind, count, name, change) in DIFFERENCES {
        let embeddings = set.changed(change);
        let mut command = set.expecting(&embeddings);
        command.arg("--reference").arg(&reference);
        let code = i32::from(!checks.is_empty());
        let (report, stderr) = set.report(&mut command, code);
        assert_eq!(failed(&report).join(" "), checks, "{name}");
        assert_eq!(check(&report, "reference")["counts"][kind], count, "{name}");
        let said = name.split_once(": ").map_or("", |(_, said)| said);
        assert!(stderr.contains(said), "{name}: {stderr}");
    }
    let other = set.reference(&[
        ("id", ids(&[])),
        ("mean_6", vectors(&[], &DataType::Float32)),
    ]);
    let (report, _) = set.report(&mut compare(&set.changed(|_| {}), &other, &[]), 1);
    assert_eq!(check(&report, "reference")["counts"]["nothing_compared"], 1);
}

#[test]
fn a_reference_may_come_from_anywhere() {
    let set = Set::new();
    let rows = rows();
    let sample: Vec<Row> = rows
        .iter()
        .rev()
        .filter(|row| row.start == 0)
        .step_by(3)
        .cloned()
        .collect();
    let plain = vectors(&sample, &DataType::Float32);
    let values = || sample.iter().map(|row| row.vector.iter().copied());
    let list = ListArray::from_iter_primitive::<Float32Type, _, _>(
        values().map(|vector| Some(vector.map(Some))),
    );
    let large = LargeListArray::from_iter_primitive::<Float64Type, _, _>(
        values().map(|vector| Some(vector.map(|value| Some(f64::from(value))))),
    );
    let shapes: [(&str, ArrayRef); 5] = [
        ("mean_6", vectors(&sample, &DataType::Float16)),
        ("mean_6", vectors(&sample, &DataType::Float64)),
        ("mean_6", Arc::new(list)),
        ("mean_6", Arc::new(large)),
        ("embedding", plain),
    ];
    let large_ids: ArrayRef = Arc::new(LargeStringArray::from_iter_values(
        sample.iter().map(|row| &row.id),
    ));
    let label: ArrayRef = Arc::new(Int64Array::from_iter_values((0_i64..).take(sample.len())));
    for dtype in [StoreDtype::F32, StoreDtype::F16] {
        let embeddings = set.embeddings("embeddings.parquet", &rows, dtype);
        for (place, (name, vectors)) in shapes.iter().enumerate() {
            let id = if place % 2 == 0 {
                ids(&sample)
            } else {
                Arc::clone(&large_ids)
            };
            let reference = set.reference(&[
                ("label", Arc::clone(&label)),
                ("id", id),
                (name, Arc::clone(vectors)),
            ]);
            let (report, _) = set.report(&mut compare(&embeddings, &reference, &[]), 0);
            let counts = &check(&report, "reference")["counts"];
            assert_eq!(
                (&counts["compared"], &counts["not_in_reference"]),
                (&10.into(), &20.into())
            );
            assert_eq!(report["agreement"][0]["vectors"], 10);
            assert!(
                report["agreement"][0]["min_cosine"]
                    .as_f64()
                    .is_some_and(|min| min > 0.999_999)
            );
        }
    }
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
    let text = || rows.iter().map(|row| &row.id);
    let words = Arc::new(LargeStringArray::from_iter_values(text()));
    let ids: [ArrayRef; 3] = [
        Arc::new(StringViewArray::from_iter_values(text())),
        Arc::new(DictionaryArray::new(
            Int32Array::from_iter_values(0..5),
            words,
        )),
        Arc::new(Int64Array::from_iter_values(10..15)),
    ];
    for id in ids {
        let vectors = vectors(&rows, &DataType::Float64);
        let reference = set.reference(&[("id", id), ("any", vectors)]);
        let (report, _) = set.report(&mut compare(&embeddings, &reference, &[]), 0);
        assert_eq!(report["agreement"][0]["vectors"], 5);
    }
}

#[test]
fn every_compression_of_parquet_writers_is_read() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let rows = rows();
    let starts = Int64Array::from_iter_values(rows.iter().map(|row| i64::from(row.start)));
    let columns: [(&str, ArrayRef); 3] = [
        ("id", crate::set::ids(&rows)),
        ("start", Arc::new(starts)),
        ("mean_6", vectors(&rows, &DataType::Float32)),
    ];
    for compression in [
        Compression::GZIP(GzipLevel::default()),
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(parquet::basic::ZstdLevel::default()),
    ] {
        let reference = set.parquet("reference.parquet", &columns, compression);
        let (report, _) = set.report(&mut compare(&embeddings, &reference, &[]), 0);
        assert_eq!(check(&report, "reference")["counts"]["compared"], 30);
    }
}

#[test]
fn embeddings_are_a_reference_for_each_other_window_by_window() {
    let set = Set::new();
    let mut rotated = rows();
    rotated.rotate_left(5);
    let reference = set.embeddings("reference.parquet", &rotated, StoreDtype::F32);
    let compared = |embeddings: &Path, options: &[&str], code| {
        set.report(&mut compare(embeddings, &reference, options), code)
    };
    let embeddings = set.changed(|_| {});
    let (report, _) = compared(&embeddings, &["--min-cosine", "1"], 0);
    assert_eq!(check(&report, "reference")["counts"]["compared"], 30);
    let agreement = &report["agreement"][0];
    assert_eq!(
        (&agreement["min_cosine"], &agreement["max_difference"]),
        (&1.0.into(), &0.0.into())
    );

    let embeddings = set.changed(|rows| rows[9].vector[0] += 100.0); // the second window of P09
    let (report, stderr) = compared(&embeddings, &[], 1);
    assert_eq!(check(&report, "reference")["counts"]["below"], 1);
    assert_eq!(check(&report, "reference")["offenders"][0]["start"], 20);
    let first = "first: ordinal 9 'P09' from residue 20: mean_6: cosine ";
    assert!(stderr.contains(first), "{stderr}");
    let theirs = rows().remove(9).vector;
    let squares = theirs.iter().map(|&value| f64::from(value).powi(2));
    let share = 100.0 / squares.sum::<f64>().sqrt();
    let most = report["agreement"][0]["max_difference"].as_f64();
    assert!((most.expect("a number") / share - 1.0).abs() < 1e-5);
    compared(&embeddings, &["--min-cosine", "-1"], 0);
}

#[test]
fn columns_with_names_of_several_lines_are_named_on_one() {
    let set = Set::new();
    let embeddings = set.embeddings("embeddings.parquet", &rows(), StoreDtype::F32);
    let rows = &rows()[..1];
    let (one, other) = (
        vectors(rows, &DataType::Float32),
        vectors(rows, &DataType::Float64),
    );
    let ids = ids(rows);
    let holey = Arc::new(FixedSizeListArray::new_null(
        Arc::new(Field::new_list_field(DataType::Float32, true)),
        8,
        1,
    ));
    for (first, second, message) in [
        ("a\nb", other, "expected one of mean_6, found a\\nb, c\\nd"),
        (
            "mean_6",
            holey as ArrayRef,
            "column 'c\\nd' has a value that is missing",
        ),
    ] {
        let one = Arc::clone(&one);
        let columns = [("id", Arc::clone(&ids)), (first, one), ("c\nd", second)];
        let reference = set.reference(&columns);
        assert_fails(compare(&embeddings, &reference, &[]), 65, message);
    }
}

#[test]
fn a_reference_that_cannot_be_compared_with_is_bad_data() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let rows = rows()[..2].to_vec();
    let twice = vec![rows[0].clone(), rows[0].clone()];
    let plain = || vectors(&rows, &DataType::Float32);
    let missing: ArrayRef = Arc::new(StringArray::from(vec![Some("P00"), None]));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values([1, 2]));
    let references: [(&[(&str, ArrayRef)], &str); 7] = [
        (
            &[("name", ids(&rows)), ("mean_6", plain())],
            "expected a column 'id'",
        ),
        (
            &[("id", ids(&rows)), ("start", ids(&rows))],
            "lists of floating-point numbers",
        ),
        (
            &[("id", ids(&rows)), ("a", plain()), ("b", plain())],
            "expected one of mean_6, found a, b",
        ),
        (
            &[("id", ids(&twice)), ("mean_6", plain())],
            "'P00' from residue 0 is in the reference more than once",
        ),
        (
            &[("id", missing), ("mean_6", plain())],
            "column 'id' has a value that is missing",
        ),
        (
            &[("id", plain()), ("mean_6", plain())],
            "expected a column 'id' of text or integers",
        ),
        (
            &[("id", numbers), ("mean_6", ids(&rows))],
            "lists of floating-point numbers, found columns id (",
        ),
    ];
    for (columns, what) in references {
        let reference = set.reference(columns);
        let mut command = compare(&embeddings, &reference, &[]);
        assert_fails(&mut command, 65, what);
        assert_fails(command, 65, "reference.parquet: ");
    }
    fs::write(set.path("proteins.fasta"), ">P00\nMKV\n").expect("write");
    for (other, code) in [
        ("proteins.fasta", 65),
        ("shard.parquet", 65),
        ("missing", 66),
    ] {
        assert_fails(compare(&embeddings, &set.path(other), &[]), code, other);
    }
}

/// Vectors of transformers in float64 show that a model is what its name says, and that gpu-embed computes it.
#[test]
fn vectors_of_another_program_are_a_reference() {
    let set = Set::new();
    let fasta = test_data("golden/proteins.fasta");
    let shard = shard(&fasta, &set.path("shards"), &[]);
    let [batches, out] = ["b.arrow", "e.parquet"].map(|name| set.path(name));
    pack(&shard, &batches, 4096);
    let mut embed = embed(&[&batches], &test_data("model-tiny"), &out);
    succeed(embed.args(["--layers", "2,4", "--pool", "mean,bos,max,std"]));
    let options = ["--min-cosine", "0.999999999"];
    let mut validate = compare(&out, &test_data("golden/vectors.parquet"), &options);
    let (report, _) = set.report(&mut validate, 0);
    let agreement = report["agreement"].as_array().expect("columns");
    assert_eq!(agreement.len(), 8);
    for column in agreement {
        assert_eq!(column["vectors"], 6, "{column}");
        let difference = column["max_difference"].as_f64();
        assert!(difference.expect("a number") < 2e-6, "{column}");
    }
}
