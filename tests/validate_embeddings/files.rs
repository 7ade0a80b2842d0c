//! Files that get no verdict, where verdicts go, and command lines.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use serde_json::Value;

use crate::common::{assert_failed, bin, visible};
use crate::plausible::{FILES, File, Plausible};
use crate::set::{Set, run};

#[test]
fn a_foreign_file_is_named_and_gets_no_verdict() {
    let set = Set::new();
    let good = set.changed(|_| {});
    let whole = fs::read(&good).expect("read");
    let shard = fs::read(set.path("shard.parquet")).expect("read");
    let (bad, report) = (set.path("bad.parquet"), set.path("report.json"));
    for bytes in [
        &whole[..whole.len() / 2],
        &whole[..whole.len() - 1],
        &shard,
        b"",
        b"PAR1",
    ] {
        fs::write(&bad, bytes).expect("write");
        let output = run(bin("validate-embeddings")
            .args([&good, &bad])
            .arg("--report")
            .arg(&report));
        assert_failed(&output, 65, "bad.parquet: ");
    }
    fs::remove_file(&bad).expect("remove");
    let rejects = set.path("rejects.csv");
    fs::write(&rejects, "ordinal,id,length,reason\nseven,P07,0,empty\n").expect("write");
    assert_failed(&run(&mut set.expecting(&good)), 65, "rejects.csv: ");
    assert_eq!(
        visible(set.0.path()),
        ["embeddings.parquet", "rejects.csv", "shard.parquet"]
    );
}

#[test]
fn long_names_from_outside_are_cut_in_messages() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let name = "\0".repeat(1000);
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["P00"]));
    let vectors = Float32Array::from(vec![0.0; 8]);
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let offsets = OffsetBuffer::from_lengths([8]);
    let vectors: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::new(vectors), None));
    let other = format!("{name}b");
    for columns in [
        &[
            ("id", Arc::clone(&ids)),
            (&name, Arc::clone(&vectors)),
            (&other, vectors),
        ][..],
        &[(name.as_str(), ids)],
    ] {
        let mut command = bin("validate-embeddings");
        command.arg(&embeddings).arg("--reference");
        let output = run(command.arg(set.reference(columns)));
        assert_failed(&output, 65, "reference.parquet: ");
        assert!(output.stderr.len() < 1000, "{}", output.stderr.len());
    }
    fs::write(set.path("rejects.csv"), format!("{name},id\n")).expect("write");
    let output = run(&mut set.expecting(&embeddings));
    assert_failed(&output, 65, "rejects.csv: not a rejects file");
    assert!(output.stderr.len() < 1000, "{}", output.stderr.len());
}

/// A flipped bit is either found, or in a place that no value comes from.
#[test]
fn a_damaged_byte_is_found_and_never_changes_a_verdict() {
    let set = Set::new();
    let good = set.changed(|_| {});
    let verdict = |path: &Path| run(set.expecting(path).args(["--quiet", "--report", "-"]));
    let sound = verdict(&good).stdout;
    let whole = fs::read(&good).expect("read");
    let mut found = 0;
    for at in (0..whole.len()).step_by(41) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&good, damaged).expect("write");
        let output = verdict(&good);
        if output.status.code() == Some(0) {
            assert!(output.stdout == sound, "byte {at}");
        } else {
            assert_failed(&output, 65, "embeddings.parquet: ");
            assert!(output.stdout.is_empty());
            found += 1;
        }
    }
    assert!(
        2 * found > whole.len() / 41,
        "found {found} of {}",
        whole.len() / 41
    );
}

#[test]
fn a_missing_file_is_named() {
    let set = Set::new();
    let good = set.changed(|_| {});
    let missing = set.path("missing");
    assert_failed(
        &run(bin("validate-embeddings").args([&good, &missing])),
        66,
        "missing: cannot open",
    );
    for flag in ["--shards", "--reference"] {
        assert_failed(
            &run(bin("validate-embeddings")
                .arg(&good)
                .arg(flag)
                .arg(&missing)),
            66,
            "missing",
        );
    }
    fs::remove_file(set.path("rejects.csv")).expect("remove");
    assert_failed(
        &run(&mut set.expecting(&good)),
        66,
        "rejects.csv: cannot open",
    );
}

#[test]
fn reports_go_to_standard_output_and_to_multiqc() {
    let set = Set::new();
    let embeddings = set.changed(|rows| drop(rows.remove(3)));
    let output = run(set.expecting(&embeddings).args(["--report", "-"]));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(report["outcome"], "fail");

    let mut child = set.expecting(&embeddings);
    child
        .args(["--report", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = child.spawn().expect("start");
    drop(child.stdout.take());
    assert_eq!(
        child.wait().expect("end").code(),
        Some(1),
        "a reader that left is no failure"
    );

    let table = set.path("run-7_mqc.json");
    run(set.expecting(&embeddings).arg("--mqc").arg(&table));
    let table: Value = serde_json::from_slice(&fs::read(table).expect("table")).expect("JSON");
    assert_eq!(table["plot_type"], "table");
    let row = &table["data"]["run-7"];
    assert_eq!(
        (&row["outcome"], &row["rows"], &row["missing"]),
        (&"fail".into(), &29.into(), &1.into())
    );
    assert_eq!(row.get("below"), None, "what was skipped has no value");
    let headers = table["headers"].as_object().expect("headers");
    assert!(
        row.as_object()
            .expect("a row")
            .keys()
            .all(|column| headers.contains_key(column))
    );
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let before = fs::read(&embeddings).expect("read");
    symlink(&embeddings, set.path("linked.parquet")).expect("link");
    assert_eq!(run(&mut bin("validate-embeddings")).status.code(), Some(2));
    let output = run(bin("validate-embeddings")
        .arg(&embeddings)
        .arg("--rejects")
        .arg(set.path("rejects.csv")));
    assert_eq!(output.status.code(), Some(2), "rejects without shards");
    for cosine in ["1.5", "NaN", "high"] {
        let output = run(bin("validate-embeddings")
            .arg(&embeddings)
            .args(["--min-cosine", cosine]));
        assert_eq!(output.status.code(), Some(2), "{cosine}");
    }
    for other_name in [
        "embeddings.parquet",
        "./embeddings.parquet",
        "linked.parquet",
    ] {
        let over_itself = run(bin("validate-embeddings")
            .arg(&embeddings)
            .arg("--report")
            .arg(set.path(other_name)));
        let message = "--report and the embeddings are the same file";
        assert_failed(&over_itself, 2, message);
    }
    let list = set.path("list.txt");
    fs::write(&list, embeddings.to_str().expect("UTF-8")).expect("write");
    let listed = format!("@{}", list.display());
    for option in ["--report", "--html", "--mqc"] {
        let over_list = run(bin("validate-embeddings")
            .arg(&listed)
            .arg(option)
            .arg(&list));
        assert_failed(&over_list, 2, "and a list of files are the same file");
    }
    let text = fs::read_to_string(&list).expect("read");
    assert_eq!(Path::new(&text), embeddings);
    assert!(fs::read(&embeddings).expect("read") == before);
}

#[test]
fn a_report_does_not_replace_data() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let data = fs::read(&embeddings).expect("read");
    let other = set.path("other.parquet");
    for option in ["--report", "--html", "--mqc"] {
        fs::write(&other, &data).expect("write");
        let mut validate = bin("validate-embeddings");
        let output = run(validate.arg(&embeddings).arg(option).arg(&other));
        assert_failed(
            &output,
            73,
            "other.parquet: exists, and is a file of other data",
        );
        assert_eq!(fs::read(&other).expect("read"), data);
    }
}

#[test]
fn a_list_stands_for_its_files() {
    let set = Plausible::new();
    let files: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    run(&mut set.command(&files));
    let list = set.path("embeddings.txt");
    let lines = (0..FILES).map(|file| format!("embeddings/{file}.parquet\r\n\n"));
    fs::write(&list, lines.collect::<String>()).expect("write");
    let validate = || {
        let mut validate = bin("validate-embeddings");
        validate.current_dir(set.path("."));
        validate.args([
            "@embeddings.txt",
            "--shards",
            "shards",
            "--rejects",
            "rejects.csv",
        ]);
        run(validate.args(["--quiet", "--report", "-"]))
    };
    let output = validate();
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["embeddings"][2]["file"], "embeddings/2.parquet");
    fs::write(&list, "\n").expect("write");
    assert_failed(
        &validate(),
        66,
        "embeddings.txt: expected one path on each line",
    );
    fs::remove_file(&list).expect("remove");
    assert_failed(&validate(), 66, "embeddings.txt: no such file or directory");
}
