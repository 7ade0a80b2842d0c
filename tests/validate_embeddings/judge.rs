//! Parts of a set that are validated where they lie, and judged together.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{assert_failed, bin};
use crate::mutations::MUTATIONS;
use crate::plausible::{FILES, File, Plausible};
use crate::set::{Set, check, failed, run};

/// Validates each embeddings file of a set beside its shard.
fn parts(set: &Plausible) -> Vec<PathBuf> {
    let part = |file: usize| {
        let findings = set.path(&format!("{file}.partial"));
        let mut part = bin("validate-embeddings");
        part.arg(set.path(&format!("embeddings/{file}.parquet")));
        part.arg("--shards")
            .arg(set.path(&format!("shards/{file}.parquet")));
        let output = run(part.arg("--partial-report").arg(&findings).arg("--quiet"));
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1)), "{output:?}");
        findings
    };
    (0..FILES).map(part).collect()
}

#[test]
fn the_verdict_on_merged_parts_is_that_of_one_run() {
    let set = Plausible::new();
    let sound: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    let mut compared = 0;
    for (_, name, change) in MUTATIONS {
        let mut files = sound.clone();
        change(&mut files);
        if files.len() != FILES {
            continue;
        }
        let whole = run(&mut set.command(&files));
        let mut merge = bin("validate-embeddings");
        merge.arg("judge").args(parts(&set));
        merge.arg("--rejects").arg(set.path("rejects.csv"));
        let merged = run(merge.args(["--quiet", "--report", "-"]));
        assert_eq!(merged.status.code(), whole.status.code(), "{name}");
        let [whole, merged] = [whole, merged]
            .map(|output| serde_json::from_slice::<Value>(&output.stdout).expect("a report"));
        assert_eq!(merged, whole, "{name}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn merges_can_be_merged() {
    let set = Plausible::new();
    let files: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    run(&mut set.command(&files));
    let parts = parts(&set);
    let merge = |parts: &[&PathBuf]| {
        let mut merge = bin("validate-embeddings");
        merge.arg("judge").args(parts);
        merge.args(["--quiet", "--report", "-"]);
        merge
    };
    let two = set.path("two.partial");
    let output = run(merge(&[&parts[0], &parts[1]])
        .arg("--partial-report")
        .arg(&two));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(check(&report, "expectations")["outcome"], "skipped");
    let tree = run(&mut merge(&[&two, &parts[2]]));
    assert_eq!(
        tree.stdout,
        run(&mut merge(&[&parts[0], &parts[1], &parts[2]])).stdout
    );
    let itself = run(merge(&[&two]).arg("--partial-report").arg(&two));
    assert_eq!(itself.status.code(), Some(2));
    let late = run(bin("validate-embeddings")
        .args(["--threads", "1", "judge"])
        .arg(&two));
    assert_failed(&late, 2, "judge comes before all options");
}

#[test]
fn a_report_does_not_replace_data() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let data = fs::read(&embeddings).expect("read");
    let other = set.path("other.parquet");
    for option in ["--report", "--html", "--mqc", "--partial-report"] {
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
fn a_part_is_not_judged_as_the_whole() {
    let set = Plausible::new();
    let files: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    run(&mut set.command(&files));
    let part = || {
        let mut part = bin("validate-embeddings");
        part.arg(set.path("embeddings/1.parquet"));
        part.arg("--shards").arg(set.path("shards/1.parquet"));
        part.arg("--partial-report").arg(set.path("1.partial"));
        part
    };
    let output = run(part().args(["--quiet", "--report", "-"]));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((output.status.code(), failed(&report)), (Some(0), vec![]));
    for name in ["ordinals", "manifest", "expectations"] {
        assert_eq!(check(&report, name)["outcome"], "skipped", "{name}");
    }
    for option in ["--expect", "--manifest", "--reference"] {
        let what = format!("--partial-report is for a part of a set, {option} for all of it");
        let value = if option == "--expect" {
            "dtype=f32"
        } else {
            "x"
        };
        assert_failed(&run(part().args([option, value])), 2, &what);
    }
    // Two thirds of the records are in no part.
    let mut merge = bin("validate-embeddings");
    merge.arg("judge").arg(set.path("1.partial"));
    merge.arg("--rejects").arg(set.path("rejects.csv"));
    let output = run(merge.args(["--quiet", "--report", "-"]));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(failed(&report), ["ordinals"]);
}

#[test]
fn damaged_or_foreign_findings_are_named() {
    let set = Set::new();
    let embeddings = set.changed(|_| {});
    let [findings, other] = ["a.partial", "b.partial"].map(|name| set.path(name));
    let mut part = bin("validate-embeddings");
    part.arg(&embeddings).arg("--partial-report").arg(&findings);
    assert_eq!(run(&mut part).status.code(), Some(0));
    let mut part = bin("validate-embeddings");
    part.arg(&embeddings)
        .arg("--shards")
        .arg(set.path("shard.parquet"));
    run(part.arg("--partial-report").arg(&other));
    let merge = |files: &[&PathBuf]| run(bin("validate-embeddings").arg("judge").args(files));
    assert_failed(
        &merge(&[&findings, &other]),
        65,
        "b.partial: expected every part",
    );
    assert_failed(
        &merge(&[&embeddings]),
        65,
        "embeddings.parquet: expected a partial report",
    );
    assert_failed(&merge(&[&set.path("none")]), 66, "none: ");

    let whole = fs::read(&findings).expect("read");
    let head = whole
        .iter()
        .position(|&byte| byte == b'\n')
        .expect("a line");
    for place in [head + 1, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&findings, damaged).expect("write");
        assert_failed(&merge(&[&findings]), 65, "a.partial: damaged or altered");
    }
    fs::write(&findings, &whole[..whole.len() / 2]).expect("write");
    assert_failed(&merge(&[&findings]), 65, "a.partial: damaged or altered");
    let text = String::from_utf8_lossy(&whole[..=head]).replace(env!("CARGO_PKG_VERSION"), "99.0");
    fs::write(&findings, [text.as_bytes(), &whole[head + 1..]].concat()).expect("write");
    let what = format!(
        "expected a partial report of version {}, found 99.0",
        env!("CARGO_PKG_VERSION")
    );
    assert_failed(&merge(&[&findings]), 65, &what);
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
