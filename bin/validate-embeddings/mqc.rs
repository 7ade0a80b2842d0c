//! What `--mqc` writes: a `MultiQC` custom-content table with one row.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::report::Report;

/// Columns: check, count, title, description.
const COUNTS: [(&str, &str, &str, &str); 10] = [
    (
        "coverage",
        "missing",
        "Missing",
        "Rows of the shards that have no embedding",
    ),
    (
        "coverage",
        "extra",
        "Extra",
        "Embeddings that are in no shard",
    ),
    (
        "coverage",
        "doubled",
        "Doubled",
        "Embeddings that are there more than once",
    ),
    (
        "records",
        "digest",
        "Other residues",
        "Embeddings made from other residues",
    ),
    (
        "ordinals",
        "absent",
        "Lost",
        "Input records neither in the shards nor rejected",
    ),
    (
        "ordinals",
        "in_rejects",
        "Rejected",
        "Input records that were rejected",
    ),
    (
        "origin",
        "different",
        "Other work",
        "Files made by other work than the first",
    ),
    (
        "finite",
        "not_finite",
        "Not finite",
        "Vectors with NaN or infinite values",
    ),
    ("norms", "zero", "Zero", "Vectors that are zero"),
    (
        "reference",
        "below",
        "Far off",
        "Vectors whose cosine with the reference is too small",
    ),
];

/// The table. The row is named after the file, whose name is `SAMPLE_mqc.json`.
pub(crate) fn table(path: &Path, report: &Report) -> Value {
    let verdict = report.verdict;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let sample = stem.strip_suffix("_mqc").unwrap_or(&stem);

    let mut row = Map::new();
    let mut headers = Map::new();
    let mut column = |name: &str, header: Value, value: Option<Value>| {
        let mut header = header;
        // Without a placement the columns would be in alphabetical order.
        header["placement"] = headers.len().into();
        headers.insert(name.to_owned(), header);
        row.extend(value.map(|value| (name.to_owned(), value)));
    };
    let rules = json!({"pass": [{"s_eq": "pass"}], "fail": [{"s_eq": "fail"}]});
    let verdict_header = json!({"title": "Verdict", "cond_formatting_rules": rules});
    column(
        "outcome",
        verdict_header,
        Some(report.outcome.to_string().into()),
    );
    column(
        "rows",
        header("Rows", "Embeddings read"),
        Some(verdict.rows.into()),
    );
    column(
        "truncated",
        header(
            "Truncated",
            "Rows of proteins of which residues were cut off",
        ),
        Some(verdict.truncated.into()),
    );
    column(
        "residues_truncated",
        header(
            "Residues cut off",
            "Residues that are in no row, by the manifest",
        ),
        verdict.residues_truncated.map(Value::from),
    );
    for (check, count, title, description) in COUNTS {
        let found = verdict.checks.iter().find(|one| one.name == check);
        let found = found.and_then(|one| one.counts.get(count));
        column(
            count,
            header(title, description),
            found.map(|&found| found.into()),
        );
    }
    column(
        "model",
        json!({"title": "Model"}),
        report.model.map(Value::from),
    );
    let mins = verdict.agreement.iter().filter_map(|column| column.min);
    let min_header = json!({
        "title": "Least cosine",
        "description": "Smallest cosine with the reference",
        "format": "{:,.6f}",
        "min": -1,
        "max": 1,
    });
    column(
        "min_cosine",
        min_header,
        mins.reduce(f64::min).map(Value::from),
    );
    json!({
        "id": "plmkit_validate_embeddings",
        "section_name": "Embeddings",
        "description": "Verdicts of validate-embeddings. An empty cell: that check was skipped.",
        "plot_type": "table",
        "pconfig": {"id": "plmkit_validate_embeddings_table", "title": "Embeddings: verdicts"},
        "headers": headers,
        "data": {sample: row},
    })
}

fn header(title: &str, description: &str) -> Value {
    json!({"title": title, "description": description, "format": "{:,.0f}", "min": 0})
}
