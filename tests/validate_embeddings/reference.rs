//! Agreement with a reference.

use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, LargeStringArray, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use plmkit_contract::StoreDtype;

use crate::common::{assert_failed, bin, embed, pack, run as succeed, shard, test_data};
use crate::set::{Row, Set, check, failed, ids, rows, run, vectors};

#[test]
fn the_vectors_of_two_records_swapped_with_their_keys_in_place_show_in_the_reference_only() {
    let set = Set::new();
    let rows = rows();
    let reference = set.reference(&[
        ("id", ids(&rows[..9])),
        ("mean_6", vectors(&rows[..9], &DataType::Float32)),
    ]);
    let embeddings = set.changed(|rows| {
        let first = rows[1].vector.clone();
        rows[1].vector = std::mem::replace(&mut rows[2].vector, first);
    });
    let (report, _) = set.report(
        set.expecting(&embeddings).arg("--reference").arg(reference),
        1,
    );
    assert_eq!(failed(&report), ["reference"]);
    assert_eq!(check(&report, "reference")["counts"]["below"], 2);
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
    let value = |data_type: DataType| Field::new_list_field(data_type, true);
    let list = |data_type: DataType| DataType::List(Arc::new(value(data_type)));
    let large = DataType::LargeList(Arc::new(value(DataType::Float64)));
    let plain = vectors(&sample, &DataType::Float32);
    let shapes: [(&str, ArrayRef); 5] = [
        ("mean_6", vectors(&sample, &DataType::Float16)),
        ("mean_6", vectors(&sample, &DataType::Float64)),
        (
            "mean_6",
            cast(&plain, &list(DataType::Float32)).expect("a list"),
        ),
        ("mean_6", cast(&plain, &large).expect("a large list")),
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
            let (report, _) = set.report(
                bin("validate-embeddings")
                    .arg(&embeddings)
                    .arg("--reference")
                    .arg(reference),
                0,
            );
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
fn embeddings_are_a_reference_for_each_other_window_by_window() {
    let set = Set::new();
    let reference = set.embeddings("reference.parquet", &rows(), StoreDtype::F32);
    let embeddings = set.changed(|rows| rows.rotate_left(5));
    let (report, _) = set.report(
        bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--reference")
            .arg(&reference),
        0,
    );
    assert_eq!(check(&report, "reference")["counts"]["compared"], 30);
    assert_eq!(report["agreement"][0]["max_difference"], 0.0);

    let embeddings = set.changed(|rows| rows[9].vector[0] += 100.0); // the second window of P09
    let (report, stderr) = set.report(
        bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--reference")
            .arg(&reference),
        1,
    );
    assert_eq!(check(&report, "reference")["counts"]["below"], 1);
    assert_eq!(check(&report, "reference")["offenders"][0]["start"], 20);
    assert!(
        stderr.contains("first: ordinal 9 'P09' from residue 20: mean_6: cosine "),
        "{stderr}"
    );

    let mut command = bin("validate-embeddings");
    command
        .arg(&embeddings)
        .arg("--reference")
        .arg(&reference)
        .args(["--min-cosine", "-1"]);
    set.report(&mut command, 0);
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
        let mut command = bin("validate-embeddings");
        command.arg(&embeddings).arg("--reference").arg(reference);
        assert_failed(&command.output().expect("run"), 65, message);
    }
}

#[test]
fn a_reference_row_without_embedding_fails_and_so_does_comparing_nothing() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let mut sample = rows()[..3].to_vec();
    sample[1].id = "Q99999".into();
    let reference = set.reference(&[
        ("id", ids(&sample)),
        ("mean_6", vectors(&sample, &DataType::Float32)),
    ]);
    let (report, stderr) = set.report(
        bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--reference")
            .arg(reference),
        1,
    );
    assert_eq!(check(&report, "reference")["counts"]["not_found"], 1);
    assert!(
        stderr.contains("'Q99999': not in the embeddings"),
        "{stderr}"
    );

    let none: &[Row] = &[];
    let reference = set.reference(&[
        ("id", ids(none)),
        ("mean_6", vectors(none, &DataType::Float32)),
    ]);
    let (report, _) = set.report(
        bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--reference")
            .arg(reference),
        1,
    );
    assert_eq!(check(&report, "reference")["counts"]["nothing_compared"], 1);
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
        let output = run(bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--reference")
            .arg(reference));
        assert_failed(&output, 65, what);
        assert_failed(&output, 65, "reference.parquet: ");
    }
    let fasta = set.path("proteins.fasta");
    fs::write(&fasta, ">P00\nMKV\n").expect("write");
    assert_failed(
        &run(bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--reference")
            .arg(fasta)),
        65,
        "proteins.fasta",
    );
    let missing = set.path("missing");
    assert_failed(
        &run(bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--reference")
            .arg(missing)),
        66,
        "missing",
    );
}

#[test]
fn every_vector_agrees_with_itself_exactly() {
    let set = Set::new();
    let embeddings = set.changed(|rows| {
        for (i, value) in rows.iter_mut().flat_map(|row| &mut row.vector).enumerate() {
            *value += (i as f32).sqrt();
        }
    });
    let mut command = bin("validate-embeddings");
    command.arg(&embeddings).arg("--reference").arg(&embeddings);
    let (report, _) = set.report(command.args(["--min-cosine", "1"]), 0);
    assert_eq!(report["agreement"][0]["min_cosine"], 1.0);
}

/// A flipped bit of embeddings that serve as a reference is either found, or where no value comes from.
#[test]
fn a_damaged_reference_of_our_own_is_found() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let reference = set.embeddings("reference.parquet", &rows(), StoreDtype::F32);
    let compare = || {
        let mut command = bin("validate-embeddings");
        command.arg(&embeddings).arg("--reference").arg(&reference);
        run(command.args(["--quiet", "--report", "-"]))
    };
    let sound = compare().stdout;
    let whole = fs::read(&reference).expect("read");
    let mut found = 0;
    for at in (0..whole.len()).step_by(41) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&reference, damaged).expect("write");
        let output = compare();
        if output.status.code() == Some(0) {
            assert!(output.stdout == sound, "byte {at}");
        } else {
            assert_failed(&output, 65, "reference.parquet: ");
            found += 1;
        }
    }
    let flips = whole.len() / 41;
    assert!(2 * found > flips, "found {found} of {flips}");
    let shard = bin("validate-embeddings")
        .arg(&embeddings)
        .arg("--reference")
        .arg(set.path("shard.parquet"))
        .output();
    assert_failed(&shard.expect("run"), 65, "shard.parquet: ");
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
    let mut validate = bin("validate-embeddings");
    validate.arg(out).arg("--reference");
    validate.arg(test_data("golden/vectors.parquet"));
    let (report, _) = set.report(validate.args(["--min-cosine", "0.999999999"]), 0);
    let agreement = report["agreement"].as_array().expect("columns");
    assert_eq!(agreement.len(), 8);
    for column in agreement {
        assert_eq!(column["vectors"], 6, "{column}");
        let difference = column["max_difference"].as_f64();
        assert!(difference.expect("a number") < 2e-6, "{column}");
    }
}
