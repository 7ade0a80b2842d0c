//! What a run's events and the samples beside it say, in figures and in sentences.
//!
//! Everything here is computed in one pass with memory that does not grow with the logs. A figure that cannot be
//! computed is `None` (null in JSON), never 0. Shares and utilisations are fractions, 0 to 1. Rates divide by
//! elapsed time of a monotonic clock; times of day only tell which samples were taken during a run.

mod gpus;
mod host;
mod mean;
mod multiqc;
mod packing;
mod queue;
mod run;
mod runs;
mod samples;
mod seen;
mod stages;
mod text;
pub mod thresholds;

use std::fmt;

use serde::Serialize;

pub use gpus::GpuSummary;
pub use host::HostSummary;
pub use multiqc::multiqc;
pub use packing::{Packing, Tail};
pub use queue::{Queue, QueueState, WaitBin};
pub use run::{RunSummary, Throughput};
pub use runs::{Runs, RunsSummary};
pub use samples::{Samples, SamplesSummary, Window};
pub use stages::{Stage, Stages};
pub use text::sentences;

/// The version of the report's form.
pub const REPORT_VERSION: u32 = 1;

/// What run events and samples say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// The version of the program that made the report.
    pub version: &'static str,
    /// The worst tier found; `None` where no tier could be told.
    pub verdict: Option<Tier>,
    /// The runs; `None` where no event log was given.
    pub events: Option<RunsSummary>,
    /// GPUs and host; `None` where no sample log was given.
    pub samples: Option<SamplesSummary>,
}

/// How much a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
            Self::None => "none",
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
    /// Puts together what was found.
    pub fn new(events: Option<RunsSummary>, samples: Option<SamplesSummary>) -> Self {
        let packing = events
            .iter()
            .flat_map(|events| &events.runs)
            .filter_map(|run| run.packing.tier);
        let gpus = samples
            .iter()
            .flat_map(|samples| &samples.gpus)
            .filter_map(|gpu| gpu.bottleneck);
        Self {
            report_version: REPORT_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            verdict: packing.chain(gpus).max(),
            events,
            samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_begins_below_its_threshold() {
        let tier = |share| Tier::below(share, 0.5, 0.8);
        assert_eq!(tier(0.49), Tier::Critical);
        assert_eq!(tier(0.5), Tier::Mild);
        assert_eq!(tier(0.79), Tier::Mild);
        assert_eq!(tier(0.8), Tier::None);
        assert!(Tier::Critical > Tier::Mild && Tier::Mild > Tier::None);
    }
}
