//! A report on runs and GPUs: figures, findings, sentences.
//!
//! All figures are computed in one pass, with memory that does not grow with the logs. An unknown figure is `None` (null in
//! JSON), never 0. Shares and utilisations are fractions, 0 to 1. Rates divide by elapsed time of a monotonic clock. A
//! figure from samples is weighted by time, has the share of the time that it was seen for, and is `None` below half of it.

mod attempt;
mod batches;
mod bins;
mod charts;
mod efficiency;
mod findings;
mod gpu;
mod groups;
mod host;
mod html;
mod idle;
mod multiqc;
mod pace;
mod run;
mod runs;
mod samples;
mod tables;
mod text;
mod times;
mod values;
mod worker;

use std::collections::HashMap;

use plmkit_logs::SkippedLines;
use serde::Serialize;

pub use attempt::AttemptSummary;
pub use batches::{
    BatchDistribution, BatchDistributions, Packing, Queue, QueueState, Stage, Stages, WaitBin,
};
pub use efficiency::Efficiency;
pub(crate) use findings::gpu_name;
pub use findings::{Finding, FindingKind};
pub use gpu::{GpuSummary, RunGpu};
pub use groups::{Comparison, Repeats, Spread, Totals, compare};
pub use host::HostSummary;
pub use html::html;
pub use idle::Idle;
pub use multiqc::multiqc;
pub use run::{RunSummary, Throughput};
pub use runs::{Runs, RunsSummary};
pub use samples::{Samples, SamplesSummary, Scope};
pub use text::sentences;
pub use values::{Energy, GpuFigures, ValueRange, ValueRanges};
pub use worker::WorkerSummary;

/// The version of the report's schema.
pub const REPORT_VERSION: u32 = 1;

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
    fn below(share: f64, critical: f64, mild: f64) -> Self {
        match share {
            _ if share < critical => Self::Critical,
            _ if share < mild => Self::Mild,
            _ => Self::None,
        }
    }
}

impl Report {
    /// Joins runs and samples. `peak_tflops` is the measured peak of each device, in 1e12 operations a second. Without it,
    /// the peak that belongs to the GPU's name counts.
    pub fn new(runs: Option<Runs>, samples: Option<Samples>, peak_tflops: Option<f64>) -> Self {
        let of_runs = runs.iter().flat_map(|runs| &runs.skipped);
        let of_samples = samples.iter().flat_map(|samples| &samples.skipped);
        let skipped = of_runs.chain(of_samples).cloned().collect();
        let mut events = runs.map(Runs::finish);
        let has_samples = samples.is_some();
        let runs = events
            .as_mut()
            .map_or(&mut [][..], |events| &mut events.runs);
        // Even without samples, a run may name its GPUs.
        let samples = samples.unwrap_or_default().finish(runs, peak_tflops);
        if let Some(events) = &mut events {
            events.by_sample = groups::by_sample(&events.runs);
            events.repeats = groups::repeats(&events.runs);
        }
        let mut report = Self {
            report_version: REPORT_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            verdict: None,
            findings: Vec::new(),
            verdict_in_words: String::new(),
            events,
            samples: Some(samples).filter(|_| has_samples),
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

/// Joins the parts of a sentence that are known.
fn joined(parts: impl IntoIterator<Item = Option<String>>, separator: &str) -> String {
    let known: Vec<String> = parts.into_iter().flatten().collect();
    known.join(separator)
}

/// Returns each name once, in the order of the names, with its number if there are several of it: `2 x NVIDIA L4`.
fn counted(names: &[&str], times: &str) -> Vec<String> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    // The first of each takes the count of all.
    let first = names
        .iter()
        .filter_map(|name| Some((name, counts.remove(name)?)));
    let texts = first.map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{count} {times} {name}"),
    });
    texts.collect()
}

#[cfg(test)]
mod tests;
