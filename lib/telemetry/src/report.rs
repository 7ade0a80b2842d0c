//! A report on runs and GPUs: figures, findings, sentences.
//!
//! All figures are computed in one pass, with memory that does not grow with the logs. An unknown figure is `None` (null in
//! JSON), never 0. Shares and utilisations are fractions, 0 to 1. Rates divide by elapsed time of a monotonic clock. A
//! figure from samples is weighted by time, has the share of the time that it was seen for, and is `None` below half of it.

mod attempt;
mod batches;
mod bins;
mod findings;
mod gpu;
mod groups;
mod host;
mod html;
mod multiqc;
mod pace;
mod run;
mod runs;
mod samples;
mod tables;
mod text;
mod times;
mod values;

use plmkit_logs::SkippedLines;
use serde::Serialize;

pub use batches::{Packing, Queue, QueueState, Stage, Stages, WaitBin};
pub use findings::{Finding, FindingKind};
pub use gpu::{GpuSummary, RunGpu};
pub use groups::{Comparison, Repeats, Spread, compare};
pub use host::HostSummary;
pub use html::html;
pub use multiqc::multiqc;
pub use run::{Efficiency, RunSummary, Throughput};
pub use runs::{Runs, RunsSummary};
pub use samples::{Samples, SamplesSummary};
pub use text::sentences;
pub use values::{Energy, Figures, ValueRange};

/// The version of the report's schema.
pub const REPORT_VERSION: u32 = 2;

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
    /// How many runs and GPUs are how bad, and what the worst of each kind is.
    #[serde(skip)]
    verdict_in_words: String,
    /// The runs; `None` if no event log was given.
    pub events: Option<RunsSummary>,
    /// GPUs and host; `None` if no sample log was given.
    pub samples: Option<SamplesSummary>,
    /// The speed over that of a baseline, if one was given.
    pub baseline: Vec<Comparison>,
    /// Malformed lines that were left out, by log.
    pub skipped: Vec<SkippedLines>,
}

/// How much a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Tier {
    /// Nothing to gain.
    #[strum(serialize = "ok")]
    None,
    /// Something to gain.
    Mild,
    /// Much to gain.
    Critical,
}

impl Tier {
    /// Returns the tier of `share`: below `critical` it is critical, below `mild` it is mild.
    pub(crate) fn below(share: f64, critical: f64, mild: f64) -> Self {
        match share {
            _ if share < critical => Self::Critical,
            _ if share < mild => Self::Mild,
            _ => Self::None,
        }
    }

    /// Returns the tier of `share`: above `critical` it is critical, above `mild` it is mild.
    pub(crate) fn above(share: f64, critical: f64, mild: f64) -> Self {
        Self::below(-share, -critical, -mild)
    }
}

impl Report {
    /// Joins runs and samples.
    pub fn new(runs: Option<Runs>, samples: Option<Samples>) -> Self {
        let of_runs = runs.iter().flat_map(|runs| &runs.skipped);
        let of_samples = samples.iter().flat_map(|samples| &samples.skipped);
        let skipped = of_runs.chain(of_samples).cloned().collect();
        let mut events = runs.map(Runs::finish);
        let runs = events.as_mut();
        let runs = runs.map_or(&mut [][..], |events| &mut events.runs);
        let samples = samples.map(|samples| samples.finish(runs));
        if let Some(events) = &mut events {
            events.sum = (events.runs.len() > 1).then(|| groups::sum(&events.runs));
            events.repeats = groups::repeats(&events.runs);
        }
        let mut report = Self {
            report_version: REPORT_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            verdict: None,
            findings: Vec::new(),
            verdict_in_words: String::new(),
            events,
            samples,
            baseline: Vec::new(),
            skipped,
        };
        (report.findings, report.verdict_in_words) = findings::findings(&report);
        let counting = report.findings.iter().filter(|finding| finding.in_verdict);
        report.verdict = counting.map(|finding| finding.tier).max();
        report
    }

    /// Returns the runs of the event log.
    fn runs(&self) -> &[RunSummary] {
        let events = self.events.as_ref();
        events.map_or(&[][..], |events| &events.runs)
    }

    /// Tells what was left out of the logs.
    fn left_out(&self) -> Vec<String> {
        let torn = [
            (
                "event",
                self.events
                    .as_ref()
                    .is_some_and(|events| events.torn_last_line),
            ),
            (
                "sample",
                self.samples
                    .as_ref()
                    .is_some_and(|samples| samples.torn_last_line),
            ),
        ];
        let torn = torn.into_iter().filter(|(_, is_torn)| *is_torn);
        let torn =
            torn.map(|(log, _)| format!("the last line of the {log} log is torn and was left out"));
        let skipped = self.skipped.iter().map(ToString::to_string);
        torn.chain(skipped).collect()
    }

    /// Returns the GPUs of the sample log.
    fn gpus(&self) -> &[GpuSummary] {
        let samples = self.samples.as_ref();
        samples.map_or(&[][..], |samples| &samples.gpus)
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
