//! One GPU over a recording.

use std::collections::BTreeMap;

use serde::Serialize;

use plmkit_logs::thresholds::{
    GPU_CRITICAL_BELOW, GPU_HOT_ABOVE_C, GPU_LOST_MOMENTS, GPU_MILD_BELOW, GPU_MIN_SAMPLES,
};
use plmkit_logs::{GpuSample, Mean};

use super::Tier;
use super::power::PowerCount;
use super::throttle_count::ThrottleCount;

/// One GPU over the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuSummary {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its lasting name.
    pub uuid: Option<String>,
    /// The product.
    pub name: Option<String>,
    /// Whether a run worked on it: as the events say, and where they do not say, every GPU.
    pub in_run: bool,
    /// Samples.
    pub samples: u64,
    /// Mean share of the time in which a kernel ran.
    pub mean_utilization: Option<f64>,
    /// Mean share of the time, over all streaming multiprocessors, in which one had work.
    pub mean_sm_active: Option<f64>,
    /// Mean share of the time in which the tensor cores computed.
    pub mean_tensor_active: Option<f64>,
    /// Mean share of the time in which data went to or from device memory.
    pub mean_dram_active: Option<f64>,
    /// The most device memory in use.
    pub peak_mem_used_mib: Option<u64>,
    /// Device memory.
    pub mem_total_mib: Option<u64>,
    /// The highest temperature.
    pub max_temperature_c: Option<u32>,
    /// Samples hotter than [`GPU_HOT_ABOVE_C`]; `None` where the driver gives no temperature.
    pub hot_samples: Option<u64>,
    /// Mean power draw in watts: by the counter of energy, or else the mean of the samples.
    pub mean_power_w: Option<f64>,
    /// Samples in which something held the clocks down; `None` where the driver does not say.
    pub throttled_samples: Option<u64>,
    /// Samples by what held the clocks down.
    pub throttle_reasons: Option<BTreeMap<String, u64>>,
    /// Samples with processes of others on the GPU; `None` where no command was recorded.
    pub foreign_samples: Option<u64>,
    /// Memory errors that were not corrected and came up during the recording; `None` where the driver does not say.
    pub new_ecc_uncorrected: Option<u64>,
    /// Whether its values ended while the recording went on, or never came.
    pub lost: bool,
    /// The tier of the mean utilisation; `None` on a GPU without a run, with fewer than
    /// [`GPU_MIN_SAMPLES`] samples, or where the driver gives no utilisation.
    pub bottleneck: Option<Tier>,
    /// What held the clocks down, for findings.
    #[serde(skip)]
    pub(super) throttling: ThrottleCount,
}

/// Sums over samples of one GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuCount {
    pub(super) index: Option<u32>,
    pub(super) uuid: Option<String>,
    pub(super) name: Option<String>,
    pub(super) samples: u64,
    pub(super) utilization: Mean,
    sm_active: Mean,
    tensor_active: Mean,
    dram_active: Mean,
    pub(super) power: PowerCount,
    peak_mem_used_mib: Option<u64>,
    mem_total_mib: Option<u64>,
    max_temperature_c: Option<u32>,
    hot: Option<u64>,
    throttling: ThrottleCount,
    foreign: Option<u64>,
    last_ecc_uncorrected: Option<u64>,
    new_ecc_uncorrected: Option<u64>,
    has_values: bool,
    /// Samples without values since the last one with values.
    empty_samples: u64,
}

impl GpuCount {
    pub(super) fn is_of(&self, sample: &GpuSample) -> bool {
        self.uuid == sample.uuid && (self.uuid.is_some() || self.index == sample.index)
    }

    pub(super) fn add(&mut self, sample: &GpuSample) {
        self.index = self.index.or(sample.index);
        // A name may come late: a lost GPU has none at first.
        if self.uuid.is_none() || self.name.is_none() {
            self.uuid = self.uuid.take().or_else(|| sample.uuid.clone());
            self.name = self.name.take().or_else(|| sample.name.clone());
        }
        self.samples += 1;
        for (mean, percent) in [
            (&mut self.utilization, sample.gpu_util.map(f64::from)),
            (&mut self.sm_active, sample.sm_active),
            (&mut self.tensor_active, sample.tensor_active),
            (&mut self.dram_active, sample.dram_active),
        ] {
            if let Some(percent) = percent {
                mean.add(percent / 100.0);
            }
        }
        self.power.add(sample);
        if let Some(throttle) = &sample.throttle {
            self.throttling.add(throttle);
        }
        if let Some(celsius) = sample.temperature_c {
            *self.hot.get_or_insert(0) += u64::from(celsius > GPU_HOT_ABOVE_C);
        }
        if let Some(processes) = sample.foreign_processes {
            *self.foreign.get_or_insert(0) += u64::from(processes > 0);
        }
        self.peak_mem_used_mib = self.peak_mem_used_mib.max(sample.mem_used_mib);
        self.mem_total_mib = self.mem_total_mib.max(sample.mem_total_mib);
        self.max_temperature_c = self.max_temperature_c.max(sample.temperature_c);
        if let Some(errors) = sample.ecc_uncorrected {
            // Errors of before are no finding, and a driver that was loaded again counts from 0.
            let before = self.last_ecc_uncorrected.replace(errors).unwrap_or(errors);
            *self.new_ecc_uncorrected.get_or_insert(0) += errors.saturating_sub(before);
        }
        if has_values(sample) {
            (self.has_values, self.empty_samples) = (true, 0);
        } else {
            self.empty_samples += 1;
        }
    }

    /// Whether its values ended while the recording went on, or never came. The driver knows the name of a GPU that was lost
    /// before the recording began, too.
    fn is_lost(&self) -> bool {
        let known = self.has_values || self.uuid.is_some() || self.name.is_some();
        known && self.empty_samples >= GPU_LOST_MOMENTS
    }

    /// `recording` is the same GPU over the whole recording.
    pub(super) fn finish(self, in_run: bool, recording: &Self) -> GpuSummary {
        let enough = self.utilization.count() >= GPU_MIN_SAMPLES;
        let mean_utilization = self.utilization.mean();
        let judged = mean_utilization.filter(|_| in_run && enough);
        let throttling = Some(&self.throttling).filter(|count| count.samples > 0);
        GpuSummary {
            index: self.index,
            in_run,
            samples: self.samples,
            mean_utilization,
            mean_sm_active: self.sm_active.mean(),
            mean_tensor_active: self.tensor_active.mean(),
            mean_dram_active: self.dram_active.mean(),
            peak_mem_used_mib: self.peak_mem_used_mib,
            mem_total_mib: self.mem_total_mib,
            max_temperature_c: self.max_temperature_c,
            hot_samples: self.hot,
            mean_power_w: self.power.mean_w(),
            throttled_samples: throttling.map(|count| count.any),
            throttle_reasons: throttling.map(|count| count.reasons.clone()),
            foreign_samples: self.foreign,
            new_ecc_uncorrected: recording.new_ecc_uncorrected,
            lost: recording.is_lost(),
            bottleneck: judged.map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)),
            uuid: self.uuid,
            name: self.name,
            throttling: self.throttling,
        }
    }
}

/// Whether the driver told anything of the GPU but its name.
fn has_values(sample: &GpuSample) -> bool {
    sample.gpu_util.is_some()
        || sample.mem_used_mib.is_some()
        || sample.temperature_c.is_some()
        || sample.power_w.is_some()
        || sample.sm_clock_mhz.is_some()
        || sample.power_limit_w.is_some()
        || sample.mem_clock_mhz.is_some()
        || sample.energy_j.is_some()
        || sample.throttle.is_some()
        || sample.processes.is_some()
        || sample.ecc_uncorrected.is_some()
}
