//! What `--html` writes: the verdict as a page for people.

use plmkit_check::{Check, CheckOutcome, ColumnAgreement, Verdict};
use plmkit_page::{Bars, Cell, Figure, Page, Table, Tone};

use crate::report::VerdictReport;

/// What each check asks, in the order of the verdict.
const QUESTIONS: [(&str, &str); 17] = [
    ("coverage", "Is each row of the shards there once?"),
    ("records", "Has each row its id, length and residues?"),
    ("ordinals", "Do shards and rejects hold all records?"),
    ("manifest", "Are these the shards that the manifest lists?"),
    ("origin", "Were all files made by the same work?"),
    ("dimensions", "Have all files the same columns?"),
    ("expectations", "Are the files what was expected?"),
    ("finite", "Is every value a finite number?"),
    ("norms", "Is no vector zero?"),
    ("pooling", "Do the columns of a row fit together?"),
    ("contacts", "Are contacts probabilities, and symmetric?"),
    (
        "sequences",
        "Have equal sequences equal vectors, and others not?",
    ),
    ("constant", "Does every dimension change?"),
    ("outliers", "Have vectors the size and direction of others?"),
    ("reference", "Do vectors agree with a reference?"),
    ("spot-check", "Does a second computation give the same?"),
    ("parts", "Are the files of the dataset the listed ones?"),
];

/// The page.
pub(crate) fn html(report: &VerdictReport) -> String {
    let verdict = report.verdict;
    let mut page = Page::new(&match report.sample() {
        Some(sample) => format!("Embeddings of {sample}"),
        None => "Embeddings".to_owned(),
    });
    page.paragraph(&conclusion(verdict));
    page.heading("Checks").table(&checks(verdict));
    let skipped = verdict
        .checks
        .iter()
        .filter(|check| check.outcome == CheckOutcome::Skipped);
    if skipped.count() > 0 {
        page.paragraph("A check without its input was skipped: nothing is known of what it asks.");
    }
    page.list(verdict.failed().flat_map(violations));
    page.heading("Origin").table(&origin(report));
    page.heading("Vectors").table(&norms(verdict));
    if !verdict.spot_check.is_empty() {
        page.heading("Spot check").table(&spot_check(verdict));
    }
    if !verdict.agreement.is_empty() {
        page.heading("Reference").table(&agreement(verdict));
        let figures = verdict.agreement.iter().filter_map(cosines);
        page.figures(&figures.collect::<Vec<_>>());
    }
    page.finish()
}

fn conclusion(verdict: &Verdict) -> String {
    let rejected: u64 = verdict.rejected.values().sum();
    let failed: Vec<&str> = verdict.failed().map(|check| check.name).collect();
    let outcome = match failed.as_slice() {
        [] => "No check failed.".to_owned(),
        failed => format!("Failed: {}.", failed.join(", ")),
    };
    let elsewhere =
        [(verdict.aliases, "aliases"), (verdict.known, "known")].map(|(count, what)| {
            let count = count.filter(|&count| count > 0);
            count.map_or(String::new(), |count| format!(", {count} {what}"))
        });
    format!(
        "{outcome} {} rows, {} truncated, {rejected} rejected{}.",
        verdict.rows,
        verdict.truncated,
        elsewhere.concat()
    )
}

/// The first violations of a check, in words.
fn violations(check: &Check) -> Vec<String> {
    let violations = check.violations.iter();
    violations
        .map(|violation| format!("{}: {violation}", check.name))
        .collect()
}

fn checks(verdict: &Verdict) -> Table {
    let mut table = Table::new(["check", "outcome", "question and answer"]);
    for check in &verdict.checks {
        let tone = match check.outcome {
            CheckOutcome::Pass => Tone::Good,
            CheckOutcome::Fail => Tone::Bad,
            CheckOutcome::Skipped => Tone::Fair,
        };
        let question = QUESTIONS.iter().find(|(name, _)| *name == check.name);
        table.row([
            Cell::text(check.name),
            Cell::badge(tone, check.outcome.to_string()),
            Cell::text(format!(
                "{} {}",
                question.map_or("", |(_, question)| question),
                check.summary
            )),
        ]);
    }
    table
}

fn origin(report: &VerdictReport) -> Table {
    let mut table = Table::new(["what", "value"]);
    for (name, value) in report.origin() {
        table.row([Cell::text(name), Cell::text(value)]);
    }
    table
}

fn norms(verdict: &Verdict) -> Table {
    let mut table = Table::new([
        "column",
        "vectors",
        "not finite",
        "zero",
        "least norm",
        "mean",
        "largest norm",
    ]);
    for column in &verdict.norms {
        let number = |value: Option<f64>| Cell::number(value.map(|value| format!("{value:.4}")));
        table.row([
            Cell::text(column.column.to_string()),
            Cell::number(Some(column.vectors.to_string())),
            Cell::number(Some((column.nan + column.infinite).to_string())),
            Cell::number(Some(column.zero.to_string())),
            number(column.min),
            number(column.mean),
            number(column.max),
        ]);
    }
    table
}

fn spot_check(verdict: &Verdict) -> Table {
    let mut table = Table::new([
        "column",
        "vectors",
        "median difference",
        "largest",
        "passes",
    ]);
    for column in &verdict.spot_check {
        let number = |value: Option<f64>| Cell::number(value.map(|value| format!("{value:.1e}")));
        table.row([
            Cell::text(&column.column),
            Cell::number(Some(column.vectors.to_string())),
            number(column.median_difference),
            number(column.max_difference),
            number(Some(column.tolerance)),
        ]);
    }
    table
}

/// The distribution of the cosines of a column with the reference.
fn cosines(column: &ColumnAgreement) -> Option<Figure> {
    let bars = column.by_cosine.iter();
    let unrelated = column.unrelated_median;
    let unrelated = unrelated.map_or_else(String::new, |cosine| {
        format!("; of unrelated proteins, half have {cosine:.4} or more")
    });
    Figure::bars(&Bars {
        caption: &format!(
            "Vectors of {} by their cosine with the reference: this one or more, less than the next{unrelated}",
            column.column
        ),
        x_label: "cosine",
        y_label: "vectors",
        bars: bars
            .map(|&(least, count)| (least.to_string(), count as f64))
            .collect(),
    })
}

fn agreement(verdict: &Verdict) -> Table {
    let mut table = Table::new([
        "column",
        "vectors",
        "least cosine",
        "1 %",
        "5 %",
        "median",
        "unrelated proteins",
        "median relative difference",
        "norm ratio",
    ]);
    for column in &verdict.agreement {
        let number = |value: Option<f64>| Cell::number(value.map(|value| format!("{value:.6}")));
        let ratios = column.norm_ratio_min.zip(column.norm_ratio_max);
        table.row([
            Cell::text(&column.column),
            Cell::number(Some(column.compared.to_string())),
            number(column.min),
            number(column.q01),
            number(column.q05),
            number(column.median),
            number(column.unrelated_median),
            number(column.relative_median),
            Cell::number(ratios.map(|(least, most)| format!("{least:.3} to {most:.3}"))),
        ]);
    }
    table
}
