//! The host over a recording.

use serde::Serialize;

use plmkit_logs::{GpuSample, Mean, Timestamp};

/// The host over the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostSummary {
    /// Moments that were sampled.
    pub samples: u64,
    /// Mean share of all CPUs' time that was not idle.
    pub mean_cpu_utilization: Option<f64>,
    /// The most memory in use.
    pub peak_mem_used_mib: Option<u64>,
    /// Memory.
    pub mem_total_mib: Option<u64>,
}

/// Sums over the samples of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct HostCount {
    last: Option<Timestamp>,
    cpu: Mean,
    summary: HostSummary,
}

impl HostCount {
    /// Adds a sample. The rows of all GPUs at one moment have the same host values: only the first row counts.
    pub(super) fn add(&mut self, sample: &GpuSample) {
        if self.last.replace(sample.timestamp) == Some(sample.timestamp) {
            return;
        }
        self.cpu
            .extend(sample.host_cpu_util.map(|percent| percent / 100.0));
        let host = &mut self.summary;
        host.samples += 1;
        host.mean_cpu_utilization = self.cpu.mean();
        host.peak_mem_used_mib = host.peak_mem_used_mib.max(sample.host_mem_used_mib);
        host.mem_total_mib = host.mem_total_mib.max(sample.host_mem_total_mib);
    }

    pub(super) fn finish(self) -> HostSummary {
        self.summary
    }
}
