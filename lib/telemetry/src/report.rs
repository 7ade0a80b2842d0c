//! A report on runs and GPUs: figures, findings, sentences.
//!
//! All figures are computed in one pass, with memory that does not grow with the logs. An unknown figure is `None` (null in
//! JSON), never 0. Shares and utilisations are fractions, 0 to 1. Rates divide by elapsed time of a monotonic clock. A
//! figure from samples is weighted by time, has the share of the time that it was seen for, and is `None` below half of it.

mod attempt;
mod baseline;
mod bins;
mod condition;
mod count;
mod coverage;
mod distribution;
mod efficiency;
mod energy;
mod findings;
mod gpu_figures;
mod gpus;
mod host;
mod html;
mod idle;
mod multiqc;
mod pace;
mod packing;
mod pictures;
mod queue;
mod reading;
mod readings;
mod repeats;
mod run;
mod run_gpu;
mod runs;
mod sample_totals;
mod samples;
mod stages;
#[cfg(test)]
mod tests;
mod text;
mod time_axis;
mod time_span;
mod value_count;
mod verdict;
mod weights;
mod worker;

use plmkit_logs::SkippedLines;
use serde::Serialize;

pub use attempt::AttemptSummary;
pub use baseline::{Comparison, Speed, compare};
pub use distribution::{BatchDistribution, BatchDistributions};
pub use efficiency::Efficiency;
pub use energy::Energy;
pub(crate) use findings::gpu_name;
pub use findings::{Finding, FindingKind};
pub use gpu_figures::{GpuFigures, GpuValues};
pub use gpus::GpuSummary;
pub use host::HostSummary;
pub use html::html;
pub use idle::Idle;
pub use multiqc::multiqc;
pub use packing::{Packing, Tail};
pub use queue::{Queue, QueueState, WaitBin};
pub use repeats::{Repeats, Spread};
pub use run::{RunSummary, Throughput};
pub use run_gpu::RunGpu;
pub use runs::{Runs, RunsSummary};
pub use sample_totals::SampleTotals;
pub use samples::{Samples, SamplesSummary, Scope};
pub use stages::{Stage, Stages};
pub use text::sentences;
pub use value_count::ValueRange;
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
            events.by_sample = sample_totals::by_sample(&events.runs);
            events.repeats = repeats::repeats(&events.runs);
        }
        let mut report = Self {
            report_version: REPORT_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            verdict: None,
            findings: Vec::new(),
            events,
            samples: Some(samples).filter(|_| has_samples),
            baseline: Vec::new(),
            skipped,
        };
        report.findings = findings::findings(&report);
        let counting = report.findings.iter().filter(|finding| finding.in_verdict);
        report.verdict = counting.map(|finding| finding.tier).max();
        report
    }

    /// Returns the runs of the event log.
    fn runs(&self) -> &[RunSummary] {
        let events = self.events.as_ref();
        events.map_or(&[][..], |events| &events.runs)
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
