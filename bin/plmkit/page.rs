//! `RESULTS/index.html`: one page for a run, made of what lies in its folder.

mod lists;
mod open;
mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plmkit_check::{CheckOutcome, length_bin};
use plmkit_cli::{Common, Exit, Fault, Stop, ensure_reports, file};
use plmkit_dataset::{Dataset, SampleVerdict, SummaryLine, VectorMap, map_vectors};
use plmkit_kit::{path_text, plural};
use plmkit_page::{Page, Tone};
use plmkit_programs::monitor_log::report_of;
use plmkit_programs::validate_embeddings::{Report, add_checks, add_failures, add_origin};
use plmkit_store::{StoreError, write_report};
use plmkit_telemetry::report::add_to;

use crate::judged_sample::JudgedSample;
use crate::layout::PAGE;

/// The most points of the map: more make the page large, and hide each other.
const POINTS: u64 = 5000;
/// More samples are folded, and more failures are not told.
const SHOWN: usize = 24;

/// Make the page of a folder of results: index.html
///
/// plmkit makes it at the end of a run; workflows, and people who removed it, by this. The samples are those of summary.tsv.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Folder of results, with the summary.tsv of its last run
    #[arg(value_name = "RESULTS", value_parser = file())]
    results: PathBuf,

    /// What the page calls the folder, if it is to be moved [default: its path]
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl ReportArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let page = self.results.join(PAGE);
        ensure_reports(&[("the page", &page)])?;
        let place = self.place.as_ref().unwrap_or(&self.results);
        write_page(&self.results, place, stop)?;
        tracing::info!("page: {}", path_text(&page));
        Ok(Exit::Done)
    }
}

/// Writes the page of the results in `out`, which it calls `place`.
pub(crate) fn write_page(out: &Path, place: &Path, stop: &Stop) -> Result<(), Fault> {
    let mut problems = Vec::new();
    let samples = samples::read(out, &mut problems)?;
    let folders = samples.iter().map(|sample| out.join(&sample.line.name));
    let logs = folders.map(|folder| folder.join("logs"));
    let logs: Vec<PathBuf> = logs.filter(|logs| logs.is_dir()).collect();
    let runs = report_of(&logs)?;
    let datasets = open_datasets(out, &samples, &mut problems, stop);
    let truncated = lists::find_truncated(&datasets, &mut problems, stop);
    let rejected = lists::find_rejected(out, &samples, &mut problems);
    let (names, datasets): (Vec<_>, Vec<_>) = datasets.into_iter().unzip();
    let map = map_vectors(datasets, POINTS, stop).unwrap_or_else(|error| {
        problems.push(error.to_string());
        None
    });
    StoreError::check(stop)?;
    let mut page = Page::new(&format!("Embeddings in {}", path_text(place)));
    add_head(&mut page, &samples, &problems);
    if !logs.is_empty() {
        let (tone, verdict, reasons) = runs.headline();
        page.verdict(tone, &format!("{verdict} on speed"), reasons);
    }
    samples::add_table(&mut page, &samples);
    add_verdicts(&mut page, &samples);
    add_lengths(&mut page, &samples);
    add_map(&mut page, map.as_ref(), &names, &samples);
    page.heading("Machine");
    if logs.len() < samples.len() {
        let samples = plural(samples.len(), "sample");
        page.paragraph(&format!("{} of {samples} have logs.", logs.len()));
    }
    add_to(&mut page, &runs);
    lists::add(&mut page, &samples, &truncated, &rejected);
    open::add(&mut page, place, out, &samples, map.as_ref());
    Ok(write_report(&out.join(PAGE), &page.finish())?)
}

/// What the samples are, together, and what could not be read.
fn add_head(page: &mut Page, samples: &[JudgedSample], problems: &[String]) {
    let count = |verdict| {
        let samples = samples.iter();
        samples
            .filter(|sample| sample.verdict() == Some(verdict))
            .count()
    };
    let (passed, empty) = (count(SampleVerdict::Pass), count(SampleVerdict::Empty));
    let (tone, word) = match (passed, empty) {
        _ if !problems.is_empty() => (Tone::Bad, "files are lost or damaged"),
        (passed, _) if passed == samples.len() => (Tone::Good, "pass"),
        (0, empty) if empty == samples.len() => (Tone::Fair, "empty"),
        (passed, empty) if passed + empty == samples.len() => (Tone::Fair, "some are empty"),
        _ => (Tone::Bad, "look at the samples"),
    };
    let sum = |of: fn(&JudgedSample) -> u64| samples.iter().map(of).sum::<u64>();
    let is_unchecked = |report: &&Report| {
        let check = report.verdict.check("spot-check");
        report.verdict.rows > 0 && check.outcome == CheckOutcome::Skipped
    };
    let reports = samples.iter().filter_map(|sample| sample.report.as_ref());
    let unchecked = match reports.filter(is_unchecked).count() {
        0 => String::new(),
        unchecked => format!(", {unchecked} without a vector computed again"),
    };
    let reason = format!(
        "{passed} of {} passed{unchecked}: {}, {} rejected, {} truncated.",
        plural(samples.len(), "sample"),
        plural(sum(|sample| sample.line.rows), "row"),
        sum(|sample| sample.line.rejected),
        sum(|sample| sample.line.truncated),
    );
    let problems = BTreeSet::from_iter(problems);
    page.verdict(tone, word, &reason).list(&problems);
    for problem in problems {
        tracing::warn!("{problem}");
    }
}

/// What the validation of each sample found, as far as there is room.
fn add_verdicts(page: &mut Page, samples: &[JudgedSample]) {
    let failed = |sample: &&JudgedSample| sample.verdict() == Some(SampleVerdict::Fail);
    for sample in samples.iter().filter(failed).take(SHOWN) {
        if let Some(report) = &sample.report {
            page.heading(&format!("{}: the validation failed", sample.line.name));
            add_failures(page, report);
        }
    }
    if let [
        JudgedSample {
            report: Some(report),
            ..
        },
    ] = samples
    {
        add_checks(page, report);
    }
    let reports = samples.iter().filter_map(|sample| sample.report.as_ref());
    if let Some(report) = reports.max_by_key(|report| report.verdict.rows) {
        add_origin(page, report);
    }
}

fn add_lengths(page: &mut Page, samples: &[JudgedSample]) {
    let mut lengths = BTreeMap::<u32, u64>::new();
    let reports = || samples.iter().filter_map(|sample| sample.report.as_ref());
    for (bin, count) in reports().flat_map(|report| &report.verdict.lengths) {
        *lengths.entry(*bin).or_default() += count;
    }
    if lengths.is_empty() {
        return;
    }
    let bins = lengths.into_iter();
    let bins: Vec<_> = bins.map(|(bin, count)| (length_bin(bin), count)).collect();
    let options = reports().find_map(|report| report.listed.shard_options.as_ref());
    let option = |name: &str| options.and_then(|options| options.get(name));
    let most = option("max_residues").and_then(serde_json::Value::as_f64);
    let how = match option("long_policy").and_then(serde_json::Value::as_str) {
        Some("truncate") => "truncated beyond",
        Some("window") => "in windows beyond",
        Some("reject") => "rejected beyond",
        _ => "cut beyond",
    };
    let name = most.map(|most| format!("{how} {most} residues"));
    page.heading("Lengths").histogram(
        "Number of proteins by length in residues",
        "residues",
        &bins,
        most.zip(name.as_deref()),
    );
}

/// The datasets of samples that have some, with their names. Adds what cannot be read to `problems`.
fn open_datasets<'s>(
    out: &Path,
    samples: &'s [JudgedSample],
    problems: &mut Vec<String>,
    stop: &Stop,
) -> Vec<(&'s SummaryLine, Dataset)> {
    let has_rows = |sample: &&JudgedSample| sample.line.rows > 0 && sample.report.is_some();
    let opened = samples.iter().filter(has_rows).filter_map(|sample| {
        let opened = Dataset::open(&out.join(&sample.line.name), |_| Ok(()), stop);
        let dataset = opened.map_err(|error| problems.push(error.to_string()));
        Some((&sample.line, dataset.ok()?))
    });
    opened.collect()
}

/// A map of the vectors, or why there is none.
fn add_map(
    page: &mut Page,
    map: Option<&VectorMap>,
    names: &[&SummaryLine],
    samples: &[JudgedSample],
) {
    let rows: u64 = samples.iter().map(|sample| sample.line.rows).sum();
    let Some(map) = map else {
        if rows > 0 {
            let what = "None: it takes three proteins with different pooled vectors.";
            page.heading("Map").paragraph(what);
        }
        return;
    };
    let [x, y] = map.shares.map(|share| format!("{:.0} %", 100.0 * share));
    let count: usize = map.points.iter().map(Vec::len).sum();
    let groups = names.iter().zip(&map.points).map(|(line, points)| {
        let points = points.iter().map(|(at, id)| (*at, &**id));
        (&*line.name, points.collect())
    });
    let of_each = ["", ", the first window of each protein,"][usize::from(map.has_windows)];
    let caption = format!(
        "{count} of {}{of_each} by the first two principal components of {}, which have {x} and {y} of the variance",
        plural(rows, "row"),
        map.column,
    );
    page.heading("Map")
        .scatter(&caption, &groups.collect::<Vec<_>>());
}
