//! What passes, and what each fault does to the verdict.

use std::fs;

use plmkit_contract::StoreDtype;

use crate::common::bin;
use crate::set::{Set, check, failed, rows};

#[test]
fn complete_embeddings_pass_in_any_order_and_number_of_files() {
    let set = Set::new();
    let mut rows = rows();
    rows.reverse();
    let (front, back) = rows.split_at(11);
    let front = set.embeddings("a.parquet", front, StoreDtype::F32);
    let back = set.embeddings("b.parquet", back, StoreDtype::F32);
    let mut command = bin("validate-embeddings");
    command
        .args([&front, &back])
        .arg("--shards")
        .arg(set.path("shard.parquet"));
    command.arg("--rejects").arg(set.path("rejects.csv"));
    let (report, stderr) = set.report(&mut command, 0);
    assert_eq!(report["outcome"], "pass");
    assert_eq!(report["rows"], 30);
    assert_eq!(report["embeddings"][1]["rows"], 19);
    assert_eq!(check(&report, "coverage")["counts"]["found"], 30);
    assert_eq!(check(&report, "ordinals")["counts"]["in_rejects"], 1);
    assert_eq!(check(&report, "reference")["outcome"], "skipped");
    assert!(
        stderr.contains(
            "pass: 30 rows, 1 truncated; 9 checks passed; skipped: manifest, pooling, contacts, reference"
        ),
        "{stderr}"
    );
}

#[test]
fn without_shards_coverage_is_skipped_and_said_so() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let (report, stderr) = set.report(bin("validate-embeddings").arg(&embeddings), 0);
    for name in ["coverage", "records", "ordinals", "manifest", "reference"] {
        assert_eq!(check(&report, name)["outcome"], "skipped", "{name}");
    }
    assert_eq!(
        check(&report, "coverage")["summary"],
        "no shards were given"
    );
    assert!(
        stderr.contains(
            "skipped: coverage, records, ordinals, manifest, pooling, contacts, reference"
        ),
        "{stderr}"
    );
}

#[test]
fn every_failed_check_has_its_line_and_lists_are_short() {
    let set = Set::new();
    let embeddings = set.changed(|rows| {
        rows.truncate(14);
        rows[0].vector[0] = f32::NAN;
    });
    let (report, stderr) = set.report(&mut set.expecting(&embeddings), 1);
    assert_eq!(failed(&report), ["coverage", "finite"]);
    assert_eq!(check(&report, "coverage")["counts"]["missing"], 16);
    assert_eq!(
        check(&report, "coverage")["offenders"]
            .as_array()
            .map(Vec::len),
        Some(10)
    );
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
    let last = "validate-embeddings: fail: coverage (16 rows missing), finite (1 vector with NaN or infinite values); 14 rows";
    assert!(
        stderr.lines().any(|line| line.starts_with(last)),
        "{stderr}"
    );
}

#[test]
fn shards_and_rejects_must_share_out_all_records() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    for (rejects, count, message) in [
        ("", "absent", "ordinal 7: neither in the shards nor in"),
        (
            "7,P07,0,empty\n8,P08,5,too_short\n",
            "in_both",
            "ordinal 8: both",
        ),
        (
            "7,P07,0,empty\n7,P07,0,empty\n",
            "rejected_twice",
            "ordinal 7: in the rejects more than once",
        ),
    ] {
        fs::write(
            set.path("rejects.csv"),
            format!("ordinal,id,length,reason\n{rejects}"),
        )
        .expect("write");
        let mut command = set.expecting(&embeddings);
        let expect = ["--max-rejected", "10%"];
        let (report, stderr) = set.report(command.args(expect), 1);
        assert_eq!(failed(&report), ["ordinals"]);
        assert_eq!(check(&report, "ordinals")["counts"][count], 1);
        assert!(stderr.contains(message), "{stderr}");
    }
}

/// P09 has a window at 0 and one at 20.
#[test]
fn a_window_that_could_not_be_embedded_excuses_no_other() {
    let set = Set::new();
    let without = |starts: &[u32]| {
        set.changed(|rows| rows.retain(|row| row.ordinal != 9 || !starts.contains(&row.start)))
    };
    let of_windows = "ordinal,id,length,reason,start\n9,P09,19,not_finite,20\n";
    let listed = set.path("embeddings.rejects.csv");
    fs::write(&listed, of_windows).expect("write");
    let embeddings = without(&[20]);
    let expect = ["--max-rejected", "10%"];
    let (report, _) = set.report(set.expecting(&embeddings).arg(&listed).args(expect), 0);
    assert_eq!(check(&report, "coverage")["counts"]["rejected"], 1);
    assert_eq!(check(&report, "ordinals")["counts"]["in_rejects"], 1);
    for missing in [[0].as_slice(), &[0, 20]] {
        let embeddings = without(missing);
        let mut command = set.expecting(&embeddings);
        let (report, stderr) = set.report(command.arg(&listed).args(expect), 1);
        assert_eq!(failed(&report), ["coverage"]);
        assert_eq!(check(&report, "coverage")["counts"]["missing"], 1);
        assert!(stderr.contains("ordinal 9 'P09': missing"), "{stderr}");
    }
    let (report, _) = set.report(&mut set.expecting(&without(&[20])), 1);
    let coverage = check(&report, "coverage");
    assert_eq!(coverage["counts"]["without_list"], 1);
    assert!(
        coverage["offenders"][1]["problem"]
            .to_string()
            .contains("embeddings.parquet: rows may be missing because")
    );
}

#[test]
fn files_of_other_dimensions_or_types_are_no_set() {
    let set = Set::new();
    let rows = rows();
    let (front, back) = rows.split_at(10);
    let front = set.embeddings("front.parquet", front, StoreDtype::F32);
    let mut short = back.to_vec();
    for row in &mut short {
        row.vector.truncate(4);
    }
    let others = [
        set.embeddings("short.parquet", &short, StoreDtype::F32),
        set.embeddings("half.parquet", back, StoreDtype::F16),
    ];
    for other in others {
        let (report, stderr) = set.report(bin("validate-embeddings").args([&front, &other]), 1);
        assert_eq!(failed(&report), ["origin"]);
        assert!(stderr.contains(other.to_str().expect("text")), "{stderr}");
    }
}

#[test]
fn an_empty_set_passes_only_where_that_is_expected() {
    let set = Set::new();
    set.shard("shard.parquet", &[]);
    fs::write(set.path("rejects.csv"), "ordinal,id,length,reason\n").expect("write");
    let embeddings = set.changed(Vec::clear);
    let (report, stderr) = set.report(&mut set.expecting(&embeddings), 1);
    assert_eq!(failed(&report), ["rejected"]);
    assert!(stderr.contains("the embeddings have no rows"), "{stderr}");
    assert_eq!(report["rows"], 0);

    let reference = set.embeddings("reference.parquet", &rows(), StoreDtype::F32);
    let expecting_nothing = || {
        let mut command = set.expecting(&embeddings);
        command.args(["--max-rejected", "100%"]);
        command
    };
    set.report(&mut expecting_nothing(), 0);
    let (report, _) = set.report(expecting_nothing().arg("--reference").arg(reference), 1);
    assert_eq!(failed(&report), ["reference"]);
}
