//! What a verdict says of sound embeddings, of skipped checks and of many faults.

use plmkit_contract::{ModelName, StoreDtype};
use plmkit_store::EmbeddingsReader;
use serde_json::Value;

use crate::common::{bin, command, run};
use crate::plausible::Plausible;
use crate::set::{Set, check, failed, rows};

#[test]
fn complete_embeddings_pass_in_any_order_and_number_of_files() {
    let set = Set::new();
    let rows = rows();
    let (back, front) = rows.split_at(19);
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
            "pass: 30 rows, 1 truncated; 10 checks passed; skipped: manifest, pooling, contacts, reference"
        ),
        "{stderr}"
    );
}

#[test]
fn without_shards_or_rejects_their_checks_are_skipped_and_said_so() {
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

    let mut command = bin("validate-embeddings");
    let shard = set.path("shard.parquet");
    let (report, _) = set.report(command.arg(&embeddings).arg("--shards").arg(shard), 0);
    let ordinals = check(&report, "ordinals");
    assert_eq!(ordinals["summary"], "no rejects were given");
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
fn a_model_of_two_names_is_one_work_and_has_no_name_in_reports() {
    let set = Plausible::new();
    let mut data = set.sound.clone();
    let revision = Some("0123".to_owned());
    data.files[1].provenance.model = Some(ModelName {
        name: "b/model".to_owned(),
        revision,
    });
    let output = set.command(&data).output().expect("run");
    assert_eq!(output.status.code(), Some(0));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let what = "files call one model 'a/model' ('unknown') and 'b/model' ('0123'): ";
    assert!(stderr.contains(what), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["model"], Value::Null);
    assert_eq!(report["model_digest"], "0123456789abcdef");
    // The folder has no manifest, which queries want beside shards.
    std::fs::remove_dir_all(set.path("shards")).expect("removed");
    let select = "query-embeddings select . --id P0600 --out one.parquet";
    run(&mut command(&set.path("."), select));
    let one = EmbeddingsReader::open(&set.path("one.parquet")).expect("a row");
    assert_eq!(one.provenance().model, None);
}
