//! What `--html` writes: the verdict as a page for people.

use plmkit_check::{Check, CheckOutcome, ColumnAgreement, MapSample, Verdict};
use plmkit_contract::plural;
use plmkit_page::{Bars, Cell, Figure, Line, Lines, Page, Points, Table, Tone, short};

use crate::classes::Classes;
use crate::report::VerdictReport;

/// Rows of a table of files: those that are farthest from the others.
const FILES: usize = 20;

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
    (
        "sequences",
        "Have equal sequences equal vectors, and others not?",
    ),
    ("constant", "Does every dimension change?"),
    ("outliers", "Are vectors like others of their length?"),
    ("centres", "Are files like the other files?"),
    ("reference", "Do vectors agree with a reference?"),
    ("spot-check", "Does a second computation give the same?"),
    ("parts", "Are the files of the dataset the listed ones?"),
];

/// The page. The map is coloured by `classes`.
pub(crate) fn html(report: &VerdictReport, map: &MapSample, classes: &Classes) -> String {
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
    page.figures(&figures(verdict, map, classes));
    if !verdict.extremes.is_empty() {
        page.subheading("Vectors that are most unlike others of their length");
        page.table(&extremes(verdict));
    }
    if verdict.centres.iter().any(|centre| centre.shift.is_some()) {
        page.subheading("Files that are most unlike the others")
            .table(&centres(verdict));
    }
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
        "1 %",
        "median",
        "99 %",
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
            number(column.q01),
            number(column.median),
            number(column.q99),
            number(column.max),
        ]);
    }
    table
}

fn figures(verdict: &Verdict, map: &MapSample, classes: &Classes) -> Vec<Figure> {
    let counts = map.lengths();
    let bins = counts.keys().next().zip(counts.keys().next_back());
    let bins = bins.map_or(0..=0, |(&first, &last)| first..=last);
    let bars = bins.map(|bin| {
        let count = counts.get(&bin).copied().unwrap_or(0);
        (short(f64::from(bin).exp2()), count as f64)
    });
    let lengths = Figure::bars(&Bars {
        caption: "Rows by the length of their protein: from this number of residues on, below twice as many",
        x_label: "residues",
        y_label: "rows",
        bars: bars.collect(),
    });
    let points = map.points();
    let by_length = Classes::of_lengths();
    let name = map
        .column()
        .map_or_else(String::new, |column| column.to_string());
    let sampled = format!("{} of {name}", plural(points.len(), "sampled vector"));
    let norms = Figure::points(&Points {
        caption: &format!("Norm against length: {sampled}"),
        x_label: "residues (binary logarithm)",
        y_label: "norm",
        points: points
            .iter()
            .map(|point| {
                (
                    f64::from(point.length.max(1)).log2(),
                    point.norm,
                    by_length.of(point),
                )
            })
            .collect(),
        classes: by_length.names.clone(),
    });
    let components = Figure::points(&Points {
        caption: &format!(
            "Map of {sampled}: first two principal components, coloured by {}",
            classes.what
        ),
        x_label: "first component",
        y_label: "second component",
        points: points
            .iter()
            .map(|point| (point.place.0, point.place.1, classes.of(point)))
            .collect(),
        classes: classes.names.clone(),
    });
    [lengths, norms, components, shifts(verdict)]
        .into_iter()
        .flatten()
        .collect()
}

/// How far the centre of each file is from those of the others, column by column.
fn shifts(verdict: &Verdict) -> Option<Figure> {
    let mut lines: Vec<Line> = Vec::new();
    for centre in &verdict.centres {
        let name = centre.column.to_string();
        let Some(shift) = centre.shift else {
            continue;
        };
        let known = lines.iter().position(|line| line.name == name);
        let place = known.unwrap_or_else(|| {
            lines.push(Line {
                name,
                pieces: vec![Vec::new()],
                band: Vec::new(),
            });
            lines.len() - 1
        });
        let points = &mut lines[place].pieces[0];
        points.push((points.len() as f64 + 1.0, shift));
    }
    // There are as many colours.
    lines.truncate(6);
    let files = lines.iter().map(|line| line.pieces[0].len()).max()?;
    Figure::lines(&Lines {
        caption: "Distance of each file's centre from the others, in standard deviations over proteins; 2 fails",
        x_label: "file",
        x: 1.0..(files as f64).max(2.0),
        y_label: "distance",
        y_max: None,
        lines,
        shaded: Vec::new(),
    })
}

fn extremes(verdict: &Verdict) -> Table {
    let mut table = Table::new([
        "id",
        "ordinal",
        "column",
        "figure",
        "value",
        "usual",
        "standard deviations",
    ]);
    for extreme in &verdict.extremes {
        table.row([
            Cell::text(&extreme.id),
            Cell::number(Some(extreme.ordinal.to_string())),
            Cell::text(extreme.column.to_string()),
            Cell::text(extreme.statistic.as_ref()),
            Cell::number(Some(format!("{:.4}", extreme.value))),
            Cell::number(Some(format!("{:.4}", extreme.median))),
            Cell::number(Some(format!("{:.1}", extreme.z))),
        ]);
    }
    table
}

fn centres(verdict: &Verdict) -> Table {
    let mut centres: Vec<_> = verdict.centres.iter().collect();
    let distance = |shift: Option<f64>| shift.unwrap_or(-1.0);
    centres.sort_by(|a, b| distance(b.shift).total_cmp(&distance(a.shift)));
    let mut table = Table::new([
        "file",
        "column",
        "vectors",
        "median norm",
        "distance",
        "scatter",
    ]);
    for centre in centres.into_iter().take(FILES) {
        table.row([
            Cell::text(&centre.file),
            Cell::text(centre.column.to_string()),
            Cell::number(Some(centre.vectors.to_string())),
            Cell::number(Some(format!("{:.4}", centre.median_norm))),
            Cell::number(centre.shift.map(|shift| format!("{shift:.3}"))),
            Cell::number(centre.spread_ratio.map(|ratio| format!("{ratio:.3}"))),
        ]);
    }
    table
}

fn spot_check(verdict: &Verdict) -> Table {
    let mut files: Vec<_> = verdict.spot_check.iter().collect();
    files.sort_by(|a, b| b.max_relative.total_cmp(&a.max_relative));
    let mut table = Table::new([
        "file",
        "column",
        "vectors",
        "median difference",
        "largest",
        "largest relative",
        "least cosine",
    ]);
    for file in files.into_iter().take(FILES) {
        let number = |value: Option<f64>| Cell::number(value.map(|value| format!("{value:.1e}")));
        table.row([
            Cell::text(&file.file),
            Cell::text(&file.column),
            Cell::number(Some(file.vectors.to_string())),
            number(file.median_difference),
            number(file.max_difference),
            number(Some(file.max_relative)),
            Cell::number(file.min_cosine.map(|cosine| format!("{cosine:.7}"))),
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
