//! The host over a recording.

use serde::Serialize;

use plmkit_logs::{GpuSample, Mean, Timestamp};

/// The host over the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostSummary {
    /// Moments sampled.
    pub samples: u64,
    /// Mean share of all CPUs' time that was not idle.
    pub mean_cpu_utilization: Option<f64>,
    /// The most memory in use.
    pub peak_mem_used_mib: Option<u64>,
    /// Memory.
    pub mem_total_mib: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct HostCount {
    last: Option<Timestamp>,
    samples: u64,
    cpu: Mean,
    peak_mem_used_mib: Option<u64>,
    mem_total_mib: Option<u64>,
}

impl HostCount {
    /// Each GPU's row of a moment carries the same host: only the first counts.
    pub(super) fn add(&mut self, sample: &GpuSample) {
        if self.last.replace(sample.timestamp) == Some(sample.timestamp) {
            return;
        }
        self.samples += 1;
        if let Some(percent) = sample.host_cpu_util {
            self.cpu.add(percent / 100.0);
        }
        self.peak_mem_used_mib = self.peak_mem_used_mib.max(sample.host_mem_used_mib);
        self.mem_total_mib = self.mem_total_mib.max(sample.host_mem_total_mib);
    }

    pub(super) fn finish(&self) -> HostSummary {
        HostSummary {
            samples: self.samples,
            mean_cpu_utilization: self.cpu.mean(),
            peak_mem_used_mib: self.peak_mem_used_mib,
            mem_total_mib: self.mem_total_mib,
        }
    }
}
