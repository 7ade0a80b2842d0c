//! What `--mqc` writes: a `MultiQC` custom-content table with one row.

use std::path::Path;

use plmkit_check::CheckOutcome;
use serde_json::{Map, Value, json};

use super::report::Report;

/// The table without its row: the settings of the table and of its columns. Columns without a placement would be in
/// alphabetical order.
const TEMPLATE: &str = include_str!("mqc_columns.json");

/// The columns that are counts of a check, each with the check.
const COUNTS: [(&str, &str); 12] = [
    ("missing", "coverage"),
    ("extra", "coverage"),
    ("doubled", "coverage"),
    ("digest", "records"),
    ("absent", "ordinals"),
    ("in_rejects", "ordinals"),
    ("in_aliases", "ordinals"),
    ("in_known", "ordinals"),
    ("different", "origin"),
    ("not_finite", "finite"),
    ("zero", "zero"),
    ("below", "reference"),
];

/// The table. The row is named after the file, whose name is `SAMPLE_mqc.json`.
///
/// # Panics
/// Never: the template is JSON.
pub(crate) fn table(path: &Path, report: &Report) -> Value {
    let verdict = &report.verdict;
    let counts = COUNTS.map(|(column, check)| {
        let count = verdict.check(check).counts.get(column);
        (column, count.map(|&count| count.into()))
    });
    let cosines = verdict
        .agreement
        .iter()
        .filter_map(|column| column.min_cosine);
    let spot_check = verdict.check("spot-check").outcome;
    let spot_check = (spot_check != CheckOutcome::Skipped).then(|| spot_check.to_string().into());
    let failed: Vec<&str> = verdict
        .of(CheckOutcome::Fail)
        .map(|check| check.definition.name)
        .collect();
    let truncated = verdict.residues_truncated;
    let others = [
        ("outcome", Some(report.listed.outcome.clone().into())),
        ("rows", Some(verdict.rows.into())),
        ("truncated", Some(verdict.truncated.into())),
        ("residues_truncated", truncated.map(Value::from)),
        ("model", report.text("model").map(Value::from)),
        ("min_cosine", cosines.reduce(f64::min).map(Value::from)),
        ("failed", Some(failed.join(", ").into())),
        ("spot_check", spot_check),
    ];
    let cells = counts.into_iter().chain(others);
    let row: Map<String, Value> = cells
        .filter_map(|(column, value)| Some((column.to_owned(), value?)))
        .collect();

    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let sample = stem.strip_suffix("_mqc").unwrap_or(&stem);
    let mut table: Value = serde_json::from_str(TEMPLATE).expect("the template is JSON");
    table["data"] = json!({ sample: row });
    table
}
