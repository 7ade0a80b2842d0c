//! What a user expects of embeddings, on one set and on merged parts.

use std::fs;

use serde_json::Value;

use crate::common::{assert_failed, bin};
use crate::plausible::{FILES, File, Plausible};
use crate::set::{check, failed, run};

#[test]
fn what_is_expected_is_found_or_named() {
    let set = Plausible::new();
    let files: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    let mut command = set.command(&files);
    let findings = set.path("all.findings");
    assert_eq!(
        run(command.arg("--findings").arg(&findings)).status.code(),
        Some(0)
    );
    for (expected, wrong) in [
        ("model=a/model", ""),
        ("model=01234567", ""),
        ("dtype=f32,columns=mean_6+max_6+std_6+residues_6", ""),
        ("max-rejected=0", ""),
        ("model=a/model,model=b/model", "other_model"),
        ("model=0123456", "other_model"),
        ("dtype=bf16", "other_dtype"),
        ("columns=mean_6", "other_columns"),
    ] {
        let mut merge = bin("validate-embeddings");
        merge
            .arg("merge")
            .arg(&findings)
            .args(["--quiet", "--report", "-"]);
        for command in [&mut set.command(&files), &mut merge] {
            let output = run(command.args(["--expect", expected]));
            let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
            let check = check(&report, "expectations");
            assert_eq!(check["outcome"] == "pass", wrong.is_empty(), "{expected}");
            assert_eq!(failed(&report).is_empty(), wrong.is_empty(), "{expected}");
            let counts = check["counts"].as_object().expect("counts");
            for (name, count) in counts {
                let files = if name == wrong { FILES } else { 0 };
                assert_eq!(*count, files, "{expected}: {name}");
            }
        }
    }
    for (unknown, what) in [
        (
            "dtype=fp32",
            "expected one of f32, bf16, f16, int8, found 'fp32'",
        ),
        ("columns=mean_6,max_6", "expected NAME=VALUE, found 'max_6'"),
        (
            "columns=mean6",
            "expected columns such as mean_33+max_33, found 'mean6'",
        ),
        ("max-rejected=1%%", "expected a share such as 1% or 0.01"),
        ("modle=x", "expected model, dtype, columns or max-rejected"),
    ] {
        assert_failed(
            &run(set.command(&files).args(["--expect", unknown])),
            2,
            what,
        );
    }
}

#[test]
fn a_map_is_coloured_by_a_table() {
    let set = Plausible::new();
    let files: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    let (page, table) = (set.path("page.html"), set.path("organisms.tsv"));
    // Six classes of different sizes, and proteins of no class.
    let lines = (0..1200).filter_map(|ordinal| {
        let class = (ordinal * 7919 % 1000 + 1_i32).ilog2().saturating_sub(3);
        (class > 0).then(|| format!("<i>{class}</i>\tP{ordinal:04}\n"))
    });
    let lines = format!("organism\tid\n{}", lines.collect::<String>());
    let coloured = |lines: &str| {
        fs::write(&table, lines).expect("write");
        let mut command = set.command(&files);
        command
            .arg("--html")
            .arg(&page)
            .arg("--colour-by")
            .arg(&table);
        run(&mut command)
    };
    assert_eq!(coloured(&lines).status.code(), Some(0));
    let text = fs::read_to_string(&page).expect("a page");
    let map = &text[text.find("principal components").expect("a map")..];
    assert!(map.starts_with("principal components, coloured by organism"));
    for class in ["&lt;i&gt;6&lt;/i&gt;", "&lt;i&gt;2&lt;/i&gt;", "others"] {
        assert!(map.contains(class), "{class}");
    }
    assert!(!map.contains("&lt;i&gt;1&lt;/i&gt;") && !text.contains("<i>"));
    for (lines, what) in [
        (
            "organism\tname\nx\ty\n",
            "organisms.tsv: expected a header with a column 'id'",
        ),
        ("id\tclass\nP0000\n", "organisms.tsv: CSV error"),
    ] {
        assert_failed(&coloured(lines), 65, what);
    }
}
