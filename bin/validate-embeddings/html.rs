//! What `--html` writes: the verdict as a page for people.

use plmkit_check::{
    Check, CheckOutcome, ColumnAgreement, ColumnNorms, RecomputedAgreement, Verdict,
};
use plmkit_contract::plural;
use plmkit_page::{Bars, Cell, Column, Figure, Page, Table, Tone};

use crate::report::VerdictReport;

const CHECK: &[Column<Check>] = &[
    Column::new("check", "", |check| Cell::text(check.name)),
    Column::new("outcome", "", |check| {
        Cell::badge(tone(check.outcome), check.outcome.to_string())
    }),
    Column::new("question", "", |check| {
        Cell::text(check.definition().question)
    }),
    Column::new("answer", "", |check| Cell::text(&check.summary)),
];

const NORMS: &[Column<ColumnNorms>] = &[
    Column::new("column", "", |column| Cell::text(column.column.to_string())),
    Column::new("vectors", "", |column| Cell::count(column.vectors)),
    Column::new("not finite", "", |column| {
        Cell::count(column.nan + column.infinite)
    }),
    Column::new("zero", "", |column| Cell::count(column.zero)),
    Column::new("least norm", "", |column| Cell::decimals(column.min, 4)),
    Column::new("mean", "", |column| Cell::decimals(column.mean, 4)),
    Column::new("largest norm", "", |column| Cell::decimals(column.max, 4)),
];

const SPOT_CHECK: &[Column<RecomputedAgreement>] = &[
    Column::new("column", "", |column| Cell::text(&column.column)),
    Column::new("vectors", "", |column| Cell::count(column.vectors as u64)),
    Column::new("median difference", "", |column| {
        share(column.median_difference)
    }),
    Column::new("largest", "", |column| share(column.max_difference)),
    Column::new("passes", "", |column| share(Some(column.tolerance))),
];

const AGREEMENT: &[Column<ColumnAgreement>] = &[
    Column::new("column", "", |column| Cell::text(&column.column)),
    Column::new("vectors", "", |column| Cell::count(column.compared)),
    Column::new("least cosine", "", |column| Cell::decimals(column.min, 6)),
    Column::new("1 %", "", |column| Cell::decimals(column.q01, 6)),
    Column::new("5 %", "", |column| Cell::decimals(column.q05, 6)),
    Column::new("median", "", |column| Cell::decimals(column.median, 6)),
    Column::new("unrelated proteins", "", |column| {
        Cell::decimals(column.unrelated_median, 6)
    }),
    Column::new("median relative difference", "", |column| {
        Cell::decimals(column.relative_median, 6)
    }),
    Column::new("norm ratio", "", |column| {
        let ratios = column.norm_ratio_min.zip(column.norm_ratio_max);
        Cell::number(ratios.map(|(least, most)| format!("{least:.3} to {most:.3}")))
    }),
];

fn share(value: Option<f64>) -> Cell {
    Cell::number(value.map(|value| format!("{value:.1e}")))
}

fn tone(outcome: CheckOutcome) -> Tone {
    match outcome {
        CheckOutcome::Pass => Tone::Good,
        CheckOutcome::Fail => Tone::Bad,
        CheckOutcome::Skipped => Tone::Fair,
    }
}

/// The page: the verdict, what failed with its cause and remedy, what was skipped, and the rest folded.
pub(crate) fn html(report: &VerdictReport) -> String {
    let verdict = report.verdict;
    let mut page = Page::new(&match report.sample {
        Some(sample) => format!("Embeddings of {sample}"),
        None => "Embeddings".to_owned(),
    });
    let outcome = report.outcome;
    page.verdict(tone(outcome), &outcome.to_string(), &conclusion(verdict));
    for check in verdict.failed() {
        page.heading(check.name);
        page.paragraph(check.definition().question);
        page.paragraph(&check.summary);
        page.list(check.violations.iter().map(ToString::to_string));
        page.paragraph(check.definition().remedy);
    }
    let of = |outcome| -> Vec<Check> { verdict.of(outcome).cloned().collect() };
    let (skipped, passed) = (of(CheckOutcome::Skipped), of(CheckOutcome::Pass));
    if !skipped.is_empty() {
        page.heading("Skipped checks");
        page.table(&Table::of(&skipped, CHECK));
        page.paragraph("A check without its input was skipped: nothing is known of what it asks.");
    }
    let summary = format!("{} passed", plural(passed.len() as u64, "check"));
    page.fold(true, &summary, |page| {
        page.table(&Table::of(&passed, CHECK));
    });
    page.heading("Origin").facts(report.origin());
    page.heading("Vectors");
    page.table(&Table::of(&verdict.norms, NORMS));
    if !verdict.spot_check.is_empty() {
        page.heading("Spot check");
        page.table(&Table::of(&verdict.spot_check, SPOT_CHECK));
    }
    if !verdict.agreement.is_empty() {
        page.heading("Reference");
        page.table(&Table::of(&verdict.agreement, AGREEMENT));
        let figures = verdict.agreement.iter().filter_map(cosines);
        page.figures(&figures.collect::<Vec<_>>());
    }
    page.finish()
}

/// What failed, and how much was checked.
fn conclusion(verdict: &Verdict) -> String {
    let failed = verdict.failed().map(|check| check.name);
    let outcome = match failed.collect::<Vec<_>>().join(", ") {
        failed if failed.is_empty() => "No check failed".to_owned(),
        failed => format!("Failed: {failed}"),
    };
    let rejected: u64 = verdict.rejected.values().sum();
    let aliases = verdict.aliases.filter(|&count| count > 0);
    let aliases = aliases.map(|count| format!(", {}", plural(count, "alias")));
    let known = verdict.known.filter(|&count| count > 0);
    let known = known.map(|count| format!(", {count} known"));
    format!(
        "{outcome}. {}, {} truncated, {rejected} rejected{}{}.",
        plural(verdict.rows, "row"),
        verdict.truncated,
        aliases.unwrap_or_default(),
        known.unwrap_or_default()
    )
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
