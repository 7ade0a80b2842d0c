//! The samples on the page: what the summary and each `dataset.json` say.

use std::path::Path;

use plmkit_check::CheckOutcome;
use plmkit_cli::Fault;
use plmkit_contract::{DATASET_FILE, ListedDataset};
use plmkit_dataset::SUMMARY_FILE;
use plmkit_page::{Cell, Column, Page, Tone};
use plmkit_programs::validate_embeddings::Report;
use plmkit_store::{StoreError, read_input, read_sealed};
use serde::Deserialize;

use super::SHOWN;

/// A line of the summary, and the verdict that it is about.
#[derive(Deserialize)]
pub(super) struct PageSample {
    #[serde(rename = "sample")]
    pub(super) name: String,
    records: u64,
    pub(super) rows: u64,
    rejected: u64,
    aliases: u64,
    known: u64,
    pub(super) truncated: u64,
    pub(super) verdict: String,
    /// None of a sample that is not validated.
    #[serde(skip)]
    pub(super) report: Option<Report>,
}

const COLUMNS: [Column<PageSample>; 10] = [
    Column::new("sample", "", |sample| Cell::text(&sample.name)),
    Column::new("verdict", "", |sample| {
        let tone = match &*sample.verdict {
            "pass" => Tone::Good,
            "empty" => Tone::Fair,
            _ => Tone::Bad,
        };
        Cell::badge(tone, &sample.verdict)
    }),
    Column::new("records", "", |sample| Cell::count(sample.records)),
    Column::new("rows", "", |sample| Cell::count(sample.rows)),
    Column::new("rejected", "", |sample| Cell::count(sample.rejected)),
    Column::new("why", "", |sample| Cell::known(sample.reasons())),
    Column::new("truncated", "", |sample| Cell::count(sample.truncated)),
    Column::new("with the rows of others", "", |sample| {
        let others = sample.aliases + sample.known;
        Cell::count((others > 0).then_some(others))
    }),
    Column::new("least cosine, computed again", "", |sample| {
        Cell::decimals(sample.cosine(), 6)
    }),
    Column::new("chance to see a fault in 10 % of the rows", "%", |sample| {
        let report = sample.report.as_ref();
        let power = report.and_then(|report| report.verdict.spot_check_power);
        // Not rounded up: it is at least so much.
        Cell::percent(power.map(|power| (1000.0 * power).floor() / 1000.0))
    }),
];

impl PageSample {
    pub(super) fn rejected(&self) -> u64 {
        self.rejected
    }

    /// How many records were rejected for which reason.
    fn reasons(&self) -> Option<String> {
        let rejected = &self.report.as_ref()?.verdict.rejected;
        let reasons = rejected
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"));
        Some(reasons.collect::<Vec<_>>().join(", ")).filter(|reasons| !reasons.is_empty())
    }

    /// The smallest cosine of a vector with the same computed again.
    fn cosine(&self) -> Option<f64> {
        let verdict = &self.report.as_ref()?.verdict;
        let is_made = verdict.check("spot-check").outcome != CheckOutcome::Skipped;
        let cosines = verdict
            .spot_check
            .iter()
            .filter_map(|column| column.min_cosine);
        cosines.reduce(f64::min).filter(|_| is_made)
    }
}

/// Reads the samples of the last run in a folder of results.
pub(super) fn read(out: &Path) -> Result<Vec<PageSample>, Fault> {
    let path = out.join(SUMMARY_FILE);
    let text = read_input(&path)?;
    let mut lines = csv::ReaderBuilder::new()
        .delimiter(b'\t')
        .from_reader(&text[..]);
    let lines = lines.deserialize().collect::<Result<Vec<PageSample>, _>>();
    let mut samples = lines.map_err(|error| StoreError::malformed(&path, error))?;
    for sample in &mut samples {
        if sample.verdict != "not validated" {
            let listed = read_sealed::<ListedDataset>(&out.join(&sample.name).join(DATASET_FILE))?;
            sample.report = Report::read(listed);
        }
    }
    Ok(samples)
}

/// Adds a table of the samples. Of many, those that need attention are not folded.
pub(super) fn add_table(page: &mut Page, samples: &[PageSample]) {
    let is_long = samples.len() > SHOWN;
    let to_look_at = samples
        .iter()
        .filter(|sample| is_long && sample.verdict != "pass");
    page.heading("Samples").table(to_look_at, &COLUMNS);
    page.fold(is_long, &format!("All {} samples", samples.len()), |page| {
        page.table(samples, &COLUMNS);
    });
}
