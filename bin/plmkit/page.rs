//! `RESULTS/index.html`: one page for a run, made of what lies in its folder.

mod lists;
mod open;
mod samples;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plmkit_check::length_bin;
use plmkit_cli::{Common, Exit, Fault, Stop, ensure_reports, file};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{Dataset, DatasetError, SummaryLine, map_vectors};
use plmkit_page::{Page, Tone};
use plmkit_programs::monitor_log::report_of;
use plmkit_programs::validate_embeddings::{add_checks, add_failures, add_origin};
use plmkit_store::{StoreError, write_report};
use plmkit_telemetry::report::add_to;

use samples::PageSample;

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
    let samples = samples::read(out)?;
    let logs = samples
        .iter()
        .map(|sample| out.join(&sample.line.name).join("logs"));
    let logs: Vec<PathBuf> = logs.filter(|logs| logs.is_dir()).collect();
    let runs = report_of(&logs)?;
    let mut page = Page::new(&format!("Embeddings in {}", path_text(place)));
    add_head(&mut page, &samples);
    if !logs.is_empty() {
        let (tone, verdict, reasons) = runs.headline();
        page.verdict(tone, &format!("{verdict} on speed"), reasons);
    }
    samples::add_table(&mut page, &samples);
    add_verdicts(&mut page, &samples);
    add_lengths(&mut page, &samples);
    let (datasets, unread) = open_datasets(out, &samples, stop);
    let truncated = lists::find_truncated(&datasets, stop);
    add_map(&mut page, datasets, unread, stop);
    page.heading("Machine");
    add_to(&mut page, &runs);
    lists::add(&mut page, (out, &samples), &truncated);
    open::add(&mut page, place, &samples);
    StoreError::check(stop)?;
    Ok(write_report(&out.join(PAGE), &page.finish())?)
}

/// What the samples are, together.
fn add_head(page: &mut Page, samples: &[PageSample]) {
    let passed = samples
        .iter()
        .filter(|sample| sample.line.verdict == "pass")
        .count();
    let is_bad = |sample: &PageSample| ["fail", "not validated"].contains(&&*sample.line.verdict);
    let (tone, word) = match (passed, samples.iter().any(is_bad)) {
        (_, true) => (Tone::Bad, "look at the samples"),
        (0, false) => (Tone::Fair, "empty"),
        _ => (Tone::Good, "pass"),
    };
    let sum = |of: fn(&PageSample) -> u64| samples.iter().map(of).sum::<u64>();
    let reason = format!(
        "{passed} of {} passed: {}, {} rejected, {} truncated.",
        plural(samples.len(), "sample"),
        plural(sum(|sample| sample.line.rows), "row"),
        sum(|sample| sample.line.rejected),
        sum(|sample| sample.line.truncated),
    );
    page.verdict(tone, word, &reason);
}

/// What the validation of each sample found, as far as there is room.
fn add_verdicts(page: &mut Page, samples: &[PageSample]) {
    let failed = |sample: &&PageSample| sample.line.verdict == "fail";
    for sample in samples.iter().filter(failed).take(SHOWN) {
        if let Some(report) = &sample.report {
            page.heading(&format!("{}: the validation failed", sample.line.name));
            add_failures(page, report);
        }
    }
    if let [
        PageSample {
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

fn add_lengths(page: &mut Page, samples: &[PageSample]) {
    let mut lengths = BTreeMap::<u32, u64>::new();
    let reports = || samples.iter().filter_map(|sample| sample.report.as_ref());
    for (bin, count) in reports().flat_map(|report| &report.verdict.lengths) {
        *lengths.entry(*bin).or_default() += count;
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
        "Proteins by length in residues",
        "residues",
        &bins,
        most.zip(name.as_deref()),
    );
}

/// The datasets of samples that have some, and what is wrong with the first that cannot be read.
fn open_datasets<'s>(
    out: &Path,
    samples: &'s [PageSample],
    stop: &Stop,
) -> (Vec<(&'s SummaryLine, Dataset)>, Option<DatasetError>) {
    let has_rows = |sample: &&PageSample| sample.line.rows > 0 && sample.report.is_some();
    let (mut datasets, mut unread) = (Vec::new(), None);
    for PageSample { line, .. } in samples.iter().filter(has_rows) {
        match Dataset::open(&out.join(&line.name), |_| Ok(()), stop) {
            Ok(dataset) => datasets.push((line, dataset)),
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    (datasets, unread)
}

/// A map of the vectors. Says what is not on it.
fn add_map(
    page: &mut Page,
    datasets: Vec<(&SummaryLine, Dataset)>,
    unread: Option<DatasetError>,
    stop: &Stop,
) {
    let (lines, datasets): (Vec<_>, Vec<_>) = datasets.into_iter().unzip();
    let map = map_vectors(datasets, POINTS, stop);
    if let Some(error) = map.as_ref().err().or(unread.as_ref()) {
        page.heading("Map")
            .paragraph(&format!("Not on the map: {error}."));
    }
    let Ok(Some(map)) = map else {
        return;
    };
    let [x, y] = map.shares.map(|share| format!("{:.0} %", 100.0 * share));
    let count: usize = map.points.iter().map(Vec::len).sum();
    let groups = lines.iter().zip(&map.points).map(|(line, points)| {
        let points = points.iter().map(|(at, id)| (*at, &**id));
        (&*line.name, points.collect())
    });
    let caption = format!(
        "{count} of {} by the first two principal components of {}, which have {x} and {y} of the variance",
        plural(map.rows, "row"),
        map.column,
    );
    if unread.is_none() {
        page.heading("Map");
    }
    page.scatter(&caption, &groups.collect::<Vec<_>>());
}
