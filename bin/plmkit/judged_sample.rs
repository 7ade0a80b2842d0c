//! A sample with its verdict, for the summary and the page.

use std::path::Path;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::{DATASET_FILE, EmbeddingWork};
use plmkit_dataset::{SampleVerdict, SummaryLine};
use plmkit_programs::validate_embeddings::Report;
use plmkit_store::read_sealed;

/// A sample: its line of the summary, and its verdict.
#[derive(Default)]
pub(crate) struct JudgedSample {
    pub(crate) line: SummaryLine,
    /// None of a sample that is not validated.
    pub(crate) report: Option<Report>,
}

impl JudgedSample {
    /// A sample of which nothing is known.
    pub(crate) fn new(name: String) -> Self {
        let mut unknown = Self::default();
        unknown.line.name = name;
        unknown
    }

    /// Adds what its `dataset.json` says.
    pub(crate) fn judge(&mut self, report: Report, allow_empty: bool) {
        let Report { listed, verdict } = &report;
        let line = &mut self.line;
        line.rows = verdict.rows;
        line.aliases = verdict.aliases.unwrap_or_default();
        line.known = verdict.known.unwrap_or_default();
        line.rejected = verdict.rejected.values().sum();
        let model = report.text("model").unwrap_or_default();
        model.clone_into(&mut line.model);
        line.model_digest = listed.model_digest.clone().unwrap_or_default();
        let is_empty = line.rows == 0 && line.known == 0;
        line.verdict = match verdict.passed() {
            passed if is_empty && (passed || !allow_empty) => SampleVerdict::Empty,
            true => SampleVerdict::Pass,
            false => SampleVerdict::Fail,
        };
        if line.rows == 0 {
            line.truncated = 0;
        }
        self.report = Some(report);
    }

    /// What made its vectors, if it has some.
    pub(crate) fn work(&self) -> Option<EmbeddingWork> {
        let listed = &self.report.as_ref()?.listed;
        listed.model_digest.is_some().then(|| listed.work())
    }
}

/// Reads the verdict in the folder of a sample.
pub(crate) fn read_report(folder: &Path) -> Result<Report, Fault> {
    let path = folder.join(DATASET_FILE);
    let report = Report::read(read_sealed(&path)?);
    report.ok_or_else(|| {
        Fault::of_path(
            Exit::Data,
            &path,
            "expected a verdict of validate-embeddings",
        )
    })
}
