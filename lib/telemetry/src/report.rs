//! A report on runs and GPUs: figures, findings, sentences.
//!
//! All figures are computed in one pass, with memory that does not grow with the logs. An unknown figure is `None` (null in
//! JSON), never 0. Shares and utilisations are fractions, 0 to 1. Rates divide by elapsed time of a monotonic clock. A
//! figure from samples is weighted by time, has the share of the time that it was seen for, and is `None` below half of it.

mod attempt;
mod bins;
mod figures;
mod findings;
mod gpu;
mod groups;
mod html;
mod moments;
mod multiqc;
mod run;
mod runs;
mod samples;
mod tables;
mod text;
mod wall;
mod work;

use plmkit_logs::Tier;
use plmkit_page::Tone;
use serde::Serialize;

pub(crate) use attempt::Attempt;
pub use figures::{GpuFigure, GpuFigures};
pub use findings::{Finding, FindingKind};
pub use gpu::{GpuSummary, RunGpu};
pub use html::{add_to, html};
pub use multiqc::multiqc;
pub(crate) use run::number;
pub use run::{Efficiency, RunSummary, Throughput};
pub use runs::Runs;
pub use samples::Samples;
pub use text::sentences;

const NO_VERDICT: &str =
    "neither packing, nor the idle time of a run of 10 s, nor enough GPU utilization is known";

/// The version of the report's schema.
pub const REPORT_VERSION: u32 = 4;

/// A report on run events and samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// The version of the program that made the report.
    pub version: &'static str,
    /// The worst tier of the findings that count; `None` if nothing could be judged.
    pub verdict: Option<Tier>,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
    /// How many runs and GPUs are how bad, and what the worst of each kind is; or why there is no verdict.
    #[serde(skip)]
    reasons: String,
    /// The runs, in the order of their first events; `None` if no event log was given.
    pub runs: Option<Vec<RunSummary>>,
    /// Two runs or more together.
    pub sum: Option<RunSummary>,
    /// The GPUs; `None` if no sample log was given.
    pub gpus: Option<Vec<GpuSummary>>,
    /// The logs whose last line is torn, as of a writer that was killed, and left out.
    pub torn: Vec<String>,
}

impl Report {
    /// Joins runs and samples.
    pub fn new(runs: Option<Runs>, samples: Option<Samples>) -> Self {
        let mut runs = runs.map(Runs::finish);
        let all = runs.as_deref_mut().unwrap_or_default();
        let gpus = samples.map(|samples| samples.finish(all));
        let sum = (all.len() > 1).then(|| groups::sum(all));
        let mut report = Self {
            report_version: REPORT_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            verdict: None,
            findings: Vec::new(),
            reasons: NO_VERDICT.to_owned(),
            runs,
            sum,
            gpus,
            torn: Vec::new(),
        };
        let (findings, reasons) = findings::findings(&report);
        let counting = findings.iter().filter(|finding| finding.in_verdict);
        report.verdict = counting.map(|finding| finding.tier).max();
        if report.verdict.is_some() {
            report.reasons = reasons;
        }
        report.findings = findings;
        report
    }

    /// Returns a sentence on each log whose last line was left out.
    fn torn_lines(&self) -> impl Iterator<Item = String> {
        let logs = self.torn.iter();
        logs.map(|log| format!("{log}: its last line is torn and was left out"))
    }

    fn runs(&self) -> &[RunSummary] {
        self.runs.as_deref().unwrap_or_default()
    }

    fn gpus(&self) -> &[GpuSummary] {
        self.gpus.as_deref().unwrap_or_default()
    }

    /// Returns the verdict as a word, `verdict: mild` or `no verdict`, with its tone, and how many runs and GPUs are how bad.
    pub fn headline(&self) -> (Tone, String, &str) {
        let (tone, word) = match self.verdict {
            Some(verdict) => (tables::tone(verdict), format!("verdict: {verdict}")),
            None => (Tone::Fair, "no verdict".to_owned()),
        };
        (tone, word, &self.reasons)
    }
}

/// Divides `part` by `whole`. Returns `None` if one is unknown, `whole` is 0, or the result is beyond all numbers.
fn share(part: impl Into<Option<f64>>, whole: impl Into<Option<f64>>) -> Option<f64> {
    let (part, whole) = (part.into()?, whole.into()?);
    let share = (whole > 0.0).then(|| part / whole);
    share.filter(|share| share.is_finite())
}

/// Returns a share in sentences.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests;
