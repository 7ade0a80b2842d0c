//! What a user expects of embeddings, on one set and on merged parts.

use serde_json::Value;

use crate::common::{assert_failed, bin};
use crate::plausible::{FILES, File, Plausible};
use crate::set::{check, failed, run};

#[test]
fn what_is_expected_is_found_or_named() {
    let set = Plausible::new();
    let files: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    let mut command = set.command(&files);
    let findings = set.path("all.partial");
    assert_eq!(
        run(command.arg("--partial-report").arg(&findings))
            .status
            .code(),
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
            .arg("judge")
            .arg(&findings)
            .args(["--quiet", "--report", "-"]);
        for command in [&mut set.command(&files), &mut merge] {
            let output = run(command.args(["--expect", expected]));
            let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
            let check = check(&report, "expectations");
            assert_eq!(check["outcome"] == "pass", wrong.is_empty(), "{expected}");
            assert_eq!(failed(&report).is_empty(), wrong.is_empty(), "{expected}");
            let counts = check["counts"].as_object().expect("counts");
            let of_all = ["records", "rejected"];
            for (name, count) in counts
                .iter()
                .filter(|(name, _)| !of_all.contains(&&***name))
            {
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
