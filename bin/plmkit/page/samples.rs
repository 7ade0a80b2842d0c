//! The samples on the page: what the summary and each `dataset.json` say.

use std::path::Path;

use plmkit_check::CheckOutcome;
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{DATASET_FILE, ListedDataset};
use plmkit_dataset::{SUMMARY_FILE, SampleVerdict, read_summary};
use plmkit_page::{Cell, Column, Page, Tone};
use plmkit_programs::validate_embeddings::Report;
use plmkit_store::{is_absent, read_sealed};

use super::SHOWN;
use crate::judged_sample::JudgedSample;

const COLUMNS: [Column<JudgedSample>; 10] = [
    Column::new("sample", "", |sample| Cell::text(&sample.line.name)),
    Column::new("verdict", "", |sample| {
        let tone = match sample.verdict() {
            Some(SampleVerdict::Pass) => Tone::Good,
            Some(SampleVerdict::Empty) => Tone::Fair,
            _ => Tone::Bad,
        };
        let word = sample.verdict().map(|verdict| verdict.to_string());
        Cell::badge(tone, word.unwrap_or_else(|| "lost".to_owned()))
    }),
    Column::new("records", "", |sample| sample.count(sample.line.records)),
    Column::new("rows", "", |sample| sample.count(sample.line.rows)),
    Column::new("rejected", "", |sample| sample.count(sample.line.rejected)),
    Column::new("why", "", |sample| Cell::known(sample.reasons())),
    Column::new("truncated", "", |sample| {
        sample.count(sample.line.truncated)
    }),
    Column::new("equal to others", "", |sample| {
        let others = sample.line.aliases + sample.line.known;
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

impl JudgedSample {
    /// What was found of it; `None` if its report is lost or damaged.
    pub(super) fn verdict(&self) -> Option<SampleVerdict> {
        let verdict = Some(self.line.verdict);
        verdict.filter(|verdict| self.report.is_some() || *verdict == SampleVerdict::NotValidated)
    }

    /// A number of records. Of a sample that could not be cut, none is known.
    fn count(&self, number: u64) -> Cell {
        let is_known = self.report.is_some() || self.line.records > 0;
        Cell::count(is_known.then_some(number))
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

/// Reads the samples of the last run in a folder of results, with their last verdicts. Adds what cannot be read to `problems`.
pub(super) fn read(out: &Path, problems: &mut Vec<String>) -> Result<Vec<JudgedSample>, Fault> {
    if is_absent(&out.join(SUMMARY_FILE)) {
        let what = "no run has ended here: expected a folder of results, with summary.tsv";
        return Err(Fault::of_path(Exit::NoInput, out, what));
    }
    let lines = read_summary(out)?.into_iter().map(|mut line| {
        if line.verdict == SampleVerdict::NotValidated {
            return JudgedSample { line, report: None };
        }
        let listed = read_sealed::<ListedDataset>(&out.join(&line.name).join(DATASET_FILE));
        let report = match listed {
            Ok(listed) => Report::read(listed),
            Err(error) => {
                problems.push(error.to_string());
                None
            }
        };
        if let Some(Report { verdict, .. }) = &report {
            (line.rows, line.rejected) = (verdict.rows, verdict.rejected.values().sum());
            line.verdict = match (verdict.passed(), line.rows + line.known) {
                (_, 0) if line.verdict == SampleVerdict::Empty => SampleVerdict::Empty,
                (true, 0) => SampleVerdict::Empty,
                (true, _) => SampleVerdict::Pass,
                (false, _) => SampleVerdict::Fail,
            };
        }
        JudgedSample { line, report }
    });
    Ok(lines.collect())
}

/// Adds a table of the samples. Of many, those that need attention are not folded.
pub(super) fn add_table(page: &mut Page, samples: &[JudgedSample]) {
    let is_long = samples.len() > SHOWN;
    let to_look_at = samples
        .iter()
        .filter(|sample| is_long && sample.verdict() != Some(SampleVerdict::Pass));
    page.heading("Samples").table(to_look_at, &COLUMNS);
    page.fold(is_long, &format!("All {} samples", samples.len()), |page| {
        page.table(samples, &COLUMNS);
    });
}
