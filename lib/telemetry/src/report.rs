//! What a run's events and the samples beside it say, in figures and in sentences.
//!
//! Everything here is computed in one pass with memory that does not grow with the logs. A figure that cannot be
//! computed is `None` (null in JSON), never 0. Shares and utilisations are fractions, 0 to 1. Rates divide by
//! elapsed time of a monotonic clock; times of day only tell which samples were taken during a run.

mod attempt;
mod bins;
mod devices;
mod efficiency;
mod findings;
mod gpus;
mod host;
mod html;
mod multiqc;
mod number_set;
mod packing;
mod pictures;
mod power;
mod queue;
mod run;
mod run_gpu;
mod runs;
mod samples;
mod stages;
#[cfg(test)]
mod tests;
mod text;
mod throttle_count;
mod time_axis;
mod time_span;

use std::fmt;

use serde::Serialize;

pub use efficiency::Efficiency;
pub use findings::{Finding, FindingKind};
pub use gpus::GpuSummary;
pub use host::HostSummary;
pub use html::html;
pub use multiqc::multiqc;
pub use packing::{Packing, Tail};
pub use queue::{Queue, QueueState, WaitBin};
pub use run::{RunSummary, Throughput};
pub use run_gpu::RunGpu;
pub use runs::{Runs, RunsSummary};
pub use samples::{Samples, SamplesSummary, Scope};
pub use stages::{Stage, Stages};
pub use text::sentences;

/// The version of the report's form.
pub const REPORT_VERSION: u32 = 1;

/// What run events and samples say.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// The version of the program that made the report.
    pub version: &'static str,
    /// The worst tier of the findings that count; `None` where none of those could be told.
    pub verdict: Option<Tier>,
    /// What is worth knowing, the worst first.
    pub findings: Vec<Finding>,
    /// The runs; `None` where no event log was given.
    pub events: Option<RunsSummary>,
    /// GPUs and host; `None` where no sample log was given.
    pub samples: Option<SamplesSummary>,
}

/// How much a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Nothing to win.
    None,
    /// Something to win.
    Mild,
    /// Much to win.
    Critical,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "ok",
            Self::Mild => "mild",
            Self::Critical => "critical",
        })
    }
}

impl Tier {
    /// The tier of `share` where less than `critical` is critical and less than `mild` is mild.
    fn below(share: f64, critical: f64, mild: f64) -> Self {
        if share < critical {
            Self::Critical
        } else if share < mild {
            Self::Mild
        } else {
            Self::None
        }
    }
}

impl Report {
    /// Puts together what was found. `peak_tflops` is the measured peak of each device, in 1e12 operations a second; without
    /// it that of the GPU's name counts.
    pub fn new(
        mut events: Option<RunsSummary>,
        mut samples: Option<SamplesSummary>,
        peak_tflops: Option<f64>,
    ) -> Self {
        if let Some(events) = &mut events {
            let by_run = match &mut samples {
                Some(samples) => std::mem::take(&mut samples.by_run),
                // A run still says how many GPUs it has.
                None => Samples::default().finish(false, Some(events)).by_run,
            };
            for (run, gpus) in events.runs.iter_mut().zip(by_run) {
                run.join_gpus(gpus, peak_tflops);
            }
        }
        let findings = findings::findings(events.as_ref(), samples.as_ref());
        let counting = findings.iter().filter(|finding| finding.in_verdict);
        Self {
            report_version: REPORT_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            verdict: counting.map(|finding| finding.tier).max(),
            findings,
            events,
            samples,
        }
    }
}

/// `part` of `whole`; `None` where there is no whole.
fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
