//! Files that get no verdict, where verdicts go, and command lines.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use plmkit_contract::{RowDigest, StoreDtype};
use plmkit_store::{BatchesFile, EmbeddingsReader, read_shard};
use serde_json::Value;

use crate::common::{assert_failed, assert_fails, command, test_data, visible};
use crate::plausible::{FILES, Plausible};
use crate::set::{Set, alter_digest, rows, run};

/// `validate-embeddings`, run in the folder of a set.
fn validate(set: &Set, line: &str) -> std::process::Command {
    command(set.0.path(), &format!("validate-embeddings {line}"))
}

const EXPECTING: &str = "embeddings.parquet --shards shard.parquet --rejects rejects.csv";

#[test]
fn a_foreign_or_missing_file_is_named_and_gets_no_verdict() {
    let set = Set::new();
    let whole = fs::read(set.changed(|_| {})).expect("read");
    let shard = fs::read(set.path("shard.parquet")).expect("read");
    for bytes in [
        &whole[..whole.len() / 2],
        &whole[..whole.len() - 1],
        &shard,
        b"",
        b"PAR1",
    ] {
        fs::write(set.path("bad.parquet"), bytes).expect("write");
        let bad = validate(&set, "embeddings.parquet bad.parquet --report r.json");
        assert_fails(bad, 65, "bad.parquet: ");
    }
    fs::remove_file(set.path("bad.parquet")).expect("remove");
    for (line, what) in [
        ("missing", "missing: cannot open"),
        ("--shards missing", "missing"),
        ("--reference missing", "missing"),
    ] {
        let line = format!("embeddings.parquet {line}");
        assert_fails(validate(&set, &line), 66, what);
    }
    let seven = "ordinal,id,length,reason\nseven,P07,0,empty\n";
    fs::write(set.path("rejects.csv"), seven).expect("write");
    assert_fails(validate(&set, EXPECTING), 65, "rejects.csv: ");
    fs::remove_file(set.path("rejects.csv")).expect("remove");
    assert_fails(validate(&set, EXPECTING), 66, "rejects.csv: cannot open");
    let files = ["embeddings.parquet", "shard.parquet"];
    assert_eq!(visible(set.0.path()), files);
}

#[test]
fn a_row_digest_of_other_rows_is_found_wherever_a_file_is_read_whole() {
    for is_sum in [true, false] {
        let set = Set::new();
        let embeddings = set.changed(|_| {});
        let shard = set.path("shard.parquet");
        run(&mut command(
            set.0.path(),
            "pack-batches shard.parquet --out b.arrow --max-batch-tokens 512",
        ));
        let read = EmbeddingsReader::open(&embeddings).expect("embeddings");
        let batches = BatchesFile::open_unverified(&set.path("b.arrow")).expect("batches");
        let lines = [
            (
                &embeddings,
                read.digest(),
                format!("validate-embeddings {EXPECTING}"),
            ),
            (
                &set.path("b.arrow"),
                batches.digest(),
                format!(
                    "gpu-embed b.arrow --out e.parquet --device cpu --model {}",
                    test_data("model-tiny").display()
                ),
            ),
            (
                &shard,
                read_shard(&shard).expect("shard").digest,
                format!("validate-embeddings {EXPECTING}"),
            ),
            (
                &shard,
                RowDigest::default(),
                "pack-batches shard.parquet --out c.arrow --max-batch-tokens 512".to_owned(),
            ),
        ];
        for (path, digest, line) in lines {
            let sound = fs::read(path).expect("read");
            if digest.rows() > 0 {
                alter_digest(path, digest, is_sum);
            }
            let what = "as its metadata say, found ";
            let name = path.file_name().expect("a name").to_string_lossy();
            let output = run(&mut command(set.0.path(), &line));
            assert_failed(&output, 65, &format!("{name}: expected "));
            assert!(
                String::from_utf8_lossy(&output.stderr).contains(what),
                "{line}"
            );
            if path != &shard {
                fs::write(path, sound).expect("write");
            }
        }
        assert!(!set.path("c.arrow").exists() && !set.path("e.parquet").exists());
    }
}

#[test]
fn long_names_from_outside_are_cut_in_messages() {
    let set = Set::new();
    set.changed(|_| {});
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
        set.reference(columns);
        let compare = "embeddings.parquet --reference reference.parquet";
        let output = run(&mut validate(&set, compare));
        assert_failed(&output, 65, "reference.parquet: ");
        assert!(output.stderr.len() < 1000, "{}", output.stderr.len());
    }
    fs::write(set.path("rejects.csv"), format!("{name},id\n")).expect("write");
    let output = run(&mut validate(&set, EXPECTING));
    assert_failed(&output, 65, "rejects.csv: not a rejects file");
    assert!(output.stderr.len() < 1000, "{}", output.stderr.len());
}

/// A flipped bit of embeddings, or of embeddings that serve as a reference, is either found, or in a place that no value comes from.
#[test]
fn a_damaged_byte_is_found_and_never_changes_a_verdict() {
    let set = Set::new();
    set.changed(|_| {});
    set.embeddings("reference.parquet", &rows(), StoreDtype::F32);
    for (file, line) in [
        ("embeddings.parquet", EXPECTING),
        (
            "reference.parquet",
            "embeddings.parquet --reference reference.parquet",
        ),
    ] {
        let verdict = || run(&mut validate(&set, &format!("{line} --quiet --report -")));
        let sound = verdict().stdout;
        let whole = fs::read(set.path(file)).expect("read");
        let mut found = 0;
        for at in (0..whole.len()).step_by(41) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(set.path(file), damaged).expect("write");
            let output = verdict();
            if output.status.code() == Some(0) {
                assert!(output.stdout == sound, "{file}: byte {at}");
            } else {
                assert_failed(&output, 65, &format!("{file}: "));
                assert!(output.stdout.is_empty());
                found += 1;
            }
        }
        let flips = whole.len() / 41;
        assert!(2 * found > flips, "{file}: found {found} of {flips}");
        fs::write(set.path(file), whole).expect("write");
    }
}

#[test]
fn reports_go_to_standard_output_and_to_multiqc() {
    let set = Set::new();
    set.changed(|rows| drop(rows.remove(3)));
    let to_stdout = || validate(&set, &format!("{EXPECTING} --report -"));
    let output = run(&mut to_stdout());
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(report["outcome"], "fail");

    let mut child = to_stdout();
    child.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().expect("start");
    drop(child.stdout.take());
    let code = child.wait().expect("end").code();
    assert_eq!(code, Some(1), "a reader that left is no failure");

    run(&mut validate(
        &set,
        &format!("{EXPECTING} --mqc run-7_mqc.json"),
    ));
    let table = fs::read(set.path("run-7_mqc.json")).expect("table");
    let table: Value = serde_json::from_slice(&table).expect("JSON");
    assert_eq!(table["plot_type"], "table");
    let row = &table["data"]["run-7"];
    let found = (&row["outcome"], &row["rows"], &row["missing"]);
    assert_eq!(found, (&"fail".into(), &29.into(), &1.into()));
    assert_eq!(row.get("below"), None, "what was skipped has no value");
    let headers = table["headers"].as_object().expect("headers");
    let mut columns = row.as_object().expect("a row").keys();
    assert!(columns.all(|column| headers.contains_key(column)));
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused_and_replaces_no_data() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let before = fs::read(&embeddings).expect("read");
    fs::copy(&embeddings, set.path("other.parquet")).expect("copy");
    symlink(&embeddings, set.path("linked.parquet")).expect("link");
    fs::write(set.path("list"), "embeddings.parquet").expect("write");
    for line in [
        "--quiet",
        "embeddings.parquet --rejects rejects.csv",
        "embeddings.parquet --min-cosine 1.5",
        "embeddings.parquet --min-cosine NaN",
        "embeddings.parquet --min-cosine high",
    ] {
        let output = run(&mut validate(&set, line));
        assert_eq!(output.status.code(), Some(2), "{line}");
    }
    let itself = "--report and the embeddings are the same file";
    let listed = "and a list of files are the same file";
    let data = "other.parquet: exists, and is an embeddings file";
    for (line, code, what) in [
        ("embeddings.parquet --report embeddings.parquet", 2, itself),
        (
            "embeddings.parquet --report ./embeddings.parquet",
            2,
            itself,
        ),
        ("embeddings.parquet --report linked.parquet", 2, itself),
        ("@list --report list", 2, listed),
        ("@list --html list", 2, listed),
        ("@list --mqc list", 2, listed),
        ("embeddings.parquet --report other.parquet", 73, data),
        ("embeddings.parquet --html other.parquet", 73, data),
        ("embeddings.parquet --mqc other.parquet", 73, data),
    ] {
        assert_fails(validate(&set, line), code, what);
    }
    for name in ["embeddings.parquet", "other.parquet"] {
        assert!(fs::read(set.path(name)).expect("read") == before, "{name}");
    }
    let list = fs::read_to_string(set.path("list")).expect("read");
    assert_eq!(Path::new(&list), Path::new("embeddings.parquet"));
}

#[test]
fn a_list_stands_for_its_files() {
    let set = Plausible::new();
    run(&mut set.command(&set.sound));
    let list = set.path("embeddings.txt");
    let lines = (0..FILES).map(|file| format!("embeddings/{file}.parquet\r\n\n"));
    fs::write(&list, lines.collect::<String>()).expect("write");
    let files = "@embeddings.txt --shards shards --rejects rejects";
    let line = format!("validate-embeddings {files} --quiet --report -");
    let validate = || command(&set.path("."), &line);
    let output = run(&mut validate());
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["embeddings"][2]["file"], "embeddings/2.parquet");
    fs::write(&list, "\n").expect("write");
    let empty = "embeddings.txt: expected one path on each line";
    assert_fails(validate(), 66, empty);
    fs::remove_file(&list).expect("remove");
    let missing = "embeddings.txt: cannot open: no such file or directory";
    assert_fails(validate(), 66, missing);
}
