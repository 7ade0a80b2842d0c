//! What `--html` writes: the verdict as a page for people.

use plmkit_check::{Check, CheckOutcome, ColumnAgreement};
use plmkit_contract::ListedColumn;
use plmkit_kit::plural;
use plmkit_page::{Cell, Column, Page, Tone};
use serde_json::Value;

use super::report::Report;

const CHECK: &[Column<Check>] = &[
    Column::new("check", "", |check| Cell::text(check.definition.name)),
    Column::new("question", "", |check| {
        Cell::text(check.definition.question)
    }),
    Column::new("answer", "", |check| Cell::text(&check.summary)),
];

const SPOT_CHECK: &[Column<ColumnAgreement>] = &[
    Column::new("column", "", |column| Cell::text(column.column.to_string())),
    Column::new("vectors", "", |column| Cell::count(column.vectors)),
    Column::new("least cosine", "", |column| {
        Cell::decimals(column.min_cosine, 6)
    }),
    Column::new("largest median of a file", "", |column| {
        share(column.median_difference)
    }),
    Column::new("largest", "", |column| share(column.max_difference)),
    Column::new("limit", "", |column| share(column.tolerance)),
];

const AGREEMENT: &[Column<ColumnAgreement>] = &[
    Column::new("column", "", |column| Cell::text(column.column.to_string())),
    Column::new("vectors", "", |column| Cell::count(column.vectors)),
    Column::new("least cosine", "", |column| {
        Cell::decimals(column.min_cosine, 6)
    }),
    Column::new("largest difference", "", |column| {
        share(column.max_difference)
    }),
];

fn share(value: Option<f64>) -> Cell {
    Cell::number(value.map(|value| match value {
        0.0 => "0".to_owned(),
        _ => format!("{value:.1e}"),
    }))
}

/// The page: the verdict, what failed with its cause and remedy, what was computed again or compared, and the rest folded.
pub(crate) fn html(report: &Report) -> String {
    let (listed, verdict) = (&report.listed, &report.verdict);
    let mut page = Page::new(&match &listed.sample {
        Some(sample) => format!("Embeddings of {sample}"),
        None => "Embeddings".to_owned(),
    });
    let tone = if verdict.passed() {
        Tone::Good
    } else {
        Tone::Bad
    };
    page.verdict(tone, &listed.outcome, &conclusion(report));
    add_failures(&mut page, report);
    add_checks(&mut page, report);
    add_origin(&mut page, report);
    page.finish()
}

/// Adds what failed, with cause and remedy, to a page.
pub fn add_failures(page: &mut Page, report: &Report) {
    for check in report.verdict.of(CheckOutcome::Fail) {
        let definition = check.definition;
        page.subheading(definition.name);
        page.paragraph(&format!("{} No: {}.", definition.question, check.summary));
        if check.violations.len() >= 10 {
            page.paragraph("The first ten of each kind:");
        }
        let found = check.violations.iter().map(ToString::to_string);
        page.list(found);
        page.paragraph(&format!("Remedy: {}", definition.remedy));
    }
}

/// Adds what was computed again or compared, and the other checks, folded, to a page.
pub fn add_checks(page: &mut Page, report: &Report) {
    let verdict = &report.verdict;
    if !verdict.spot_check.is_empty() {
        page.heading("Computed again");
        page.paragraph(&format!("{}.", verdict.check("spot-check").summary));
        page.paragraph(
            "How far vectors are from the same computed again, as a share of their size.",
        );
        page.table(&verdict.spot_check, SPOT_CHECK);
    }
    if !verdict.agreement.is_empty() {
        page.heading("Cosines with the reference");
        page.table(&verdict.agreement, AGREEMENT);
    }
    for outcome in [CheckOutcome::Pass, CheckOutcome::Skipped] {
        let checks: Vec<Check> = verdict.of(outcome).cloned().collect();
        let count = plural(checks.len(), "check");
        let summary = match outcome {
            CheckOutcome::Pass => format!("{count} passed"),
            _ => format!("{count} skipped"),
        };
        if !checks.is_empty() {
            page.fold(true, &summary, |page| {
                page.table(&checks, CHECK);
            });
        }
    }
}

/// Adds what the embeddings are and where they come from.
pub fn add_origin(page: &mut Page, report: &Report) {
    let listed = &report.listed;
    let columns = listed.columns.iter().map(shown);
    let columns = columns.collect::<Vec<_>>().join(", ");
    let known = [
        ("model", report.text("model")),
        ("revision of the model", report.text("model_revision")),
        ("digest of the model", listed.model_digest.as_deref()),
        ("embedded by", report.text("embedded_by")),
        ("columns", Some(&columns)),
        ("reference", report.text("reference")),
    ];
    let known = known.into_iter();
    let facts = known.filter_map(|(name, value)| Some((name, value?.to_owned())));
    page.heading("Model and files").facts(facts);
}

/// What a column of embeddings has, in words.
pub fn shown(column: &ListedColumn) -> String {
    let text = |name| column.others.get(name).and_then(Value::as_str);
    let dimension = column.others.get("dimension").and_then(Value::as_u64);
    let values = plural(dimension.unwrap_or_default(), "value");
    let [of, dtype] = ["of", "type"].map(|name| text(name).unwrap_or_default());
    format!("{} ({values} of {dtype} for each {of})", column.name)
}

/// What failed, how much was checked, and whether anything was computed again.
fn conclusion(report: &Report) -> String {
    let verdict = &report.verdict;
    let outcome = match report.failed() {
        failed if failed.is_empty() => report.passed(),
        failed => format!("Failed: {failed}"),
    };
    let rejected = verdict.rejected.iter();
    let rejected =
        rejected.map(|(reason, count)| (*count, format!("{count} rejected as {reason}")));
    let counted = |count: u64, what: &str| (count, format!("{count} {what}"));
    let others = [
        counted(verdict.truncated, "truncated"),
        counted(
            verdict.aliases.unwrap_or(0),
            "with the row of an equal record",
        ),
        counted(verdict.known.unwrap_or(0), "known from earlier datasets"),
    ];
    let counts = others.into_iter().chain(rejected);
    let counts = counts.filter(|(count, _)| *count > 0);
    let counts = counts.map(|(_, words)| format!(", {words}"));
    let counts = counts.collect::<Vec<_>>().concat();
    let (rows, why) = (plural(verdict.rows, "row"), report.not_recomputed());
    format!("{outcome}; {rows}{counts}{why}.")
}
