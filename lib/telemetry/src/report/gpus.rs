//! One GPU over a recording.

use std::collections::BTreeMap;

use serde::Serialize;

use plmkit_logs::thresholds::{
    GPU_CRITICAL_BELOW, GPU_LOST_MOMENTS, GPU_MILD_BELOW, GPU_MIN_SAMPLES,
};
use plmkit_logs::{GpuSample, Mean};

use super::Tier;
use super::power::PowerCount;
use super::throttle_count::ThrottleCount;

/// One GPU over the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuSummary {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The product name.
    pub name: Option<String>,
    /// Whether a run used it. If the events do not name GPUs, every GPU counts as used.
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
    /// The temperature above which it is hot: 5 °C below the limit of its board, or 80 °C.
    pub hot_above_c: Option<u32>,
    /// Samples hotter than that; `None` if the driver gives no temperature.
    pub hot_samples: Option<u64>,
    /// Mean power draw in watts: by the energy counter, or else the mean of the samples.
    pub mean_power_w: Option<f64>,
    /// Samples in which something held the clocks down; `None` if the driver does not say.
    pub throttled_samples: Option<u64>,
    /// Samples by the reason that held the clocks down.
    pub throttle_reasons: Option<BTreeMap<String, u64>>,
    /// Samples with foreign processes on the GPU; `None` if no command was recorded.
    pub foreign_samples: Option<u64>,
    /// Uncorrected memory errors that occurred during the recording; `None` if the driver does not say.
    pub new_ecc_uncorrected: Option<u64>,
    /// Whether its values ended while the recording went on, or never came.
    pub lost: bool,
    /// The tier of the mean utilisation; `None` for a GPU without a run, with fewer than [`GPU_MIN_SAMPLES`] samples, or
    /// without known utilisation.
    pub bottleneck: Option<Tier>,
    /// Throttling, for findings.
    #[serde(skip)]
    pub(super) throttling: ThrottleCount,
}

/// Sums over samples of one GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuCount {
    /// The fields that need no mean are up to date.
    pub(super) summary: GpuSummary,
    pub(super) utilization: Mean,
    sm_active: Mean,
    tensor_active: Mean,
    dram_active: Mean,
    pub(super) power: PowerCount,
    last_ecc_uncorrected: Option<u64>,
    has_values: bool,
    /// Samples without values since the last one with values.
    empty_samples: u64,
}

impl GpuCount {
    pub(super) fn add(&mut self, sample: &GpuSample) {
        let gpu = &mut self.summary;
        gpu.index = gpu.index.or(sample.index);
        // A lost GPU may have no name at first.
        if gpu.uuid.is_none() || gpu.name.is_none() {
            gpu.uuid = gpu.uuid.take().or_else(|| sample.uuid.clone());
            gpu.name = gpu.name.take().or_else(|| sample.name.clone());
        }
        gpu.samples += 1;
        let share = |percent: Option<f64>| percent.map(|percent| percent / 100.0);
        self.utilization
            .extend(share(sample.gpu_util.map(f64::from)));
        self.sm_active.extend(share(sample.sm_active));
        self.tensor_active.extend(share(sample.tensor_active));
        self.dram_active.extend(share(sample.dram_active));
        self.power.add(sample);
        if let Some(throttle) = &sample.throttle {
            gpu.throttling.add(throttle);
        }
        if let Some(celsius) = sample.temperature_c {
            *gpu.hot_samples.get_or_insert(0) += u64::from(celsius > sample.hot_above_c());
            gpu.hot_above_c = Some(sample.hot_above_c());
        }
        if let Some(processes) = sample.foreign_processes {
            *gpu.foreign_samples.get_or_insert(0) += u64::from(processes > 0);
        }
        gpu.peak_mem_used_mib = gpu.peak_mem_used_mib.max(sample.mem_used_mib);
        gpu.mem_total_mib = gpu.mem_total_mib.max(sample.mem_total_mib);
        gpu.max_temperature_c = gpu.max_temperature_c.max(sample.temperature_c);
        if let Some(errors) = sample.ecc_uncorrected {
            // Errors from before the recording do not count. A reloaded driver counts from 0.
            let before = self.last_ecc_uncorrected.replace(errors).unwrap_or(errors);
            *gpu.new_ecc_uncorrected.get_or_insert(0) +=
                errors.checked_sub(before).unwrap_or(errors);
        }
        if sample.has_values() {
            (self.has_values, self.empty_samples) = (true, 0);
        } else {
            self.empty_samples += 1;
        }
    }

    /// Whether a sample is of this GPU.
    pub(super) fn is_of(&self, sample: &GpuSample) -> bool {
        let gpu = &self.summary;
        gpu.uuid == sample.uuid && (gpu.uuid.is_some() || gpu.index == sample.index)
    }

    /// Whether both have the same UUID and index.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let id = |gpu: &Self| (gpu.summary.uuid.clone(), gpu.summary.index);
        id(self) == id(other)
    }

    /// Whether the values ended while the recording went on, or never came. The driver knows the name even of a GPU that
    /// was lost before the recording began.
    fn is_lost(&self) -> bool {
        let has_name = self.summary.uuid.is_some() || self.summary.name.is_some();
        (self.has_values || has_name) && self.empty_samples >= GPU_LOST_MOMENTS
    }

    /// Completes the summary. `recording` is the same GPU over the whole recording.
    pub(super) fn finish(self, in_run: bool, recording: &Self) -> GpuSummary {
        let judged = in_run && self.utilization.count() >= GPU_MIN_SAMPLES;
        let mean_utilization = self.utilization.mean();
        let throttling = Some(&self.summary.throttling).filter(|count| count.samples > 0);
        GpuSummary {
            in_run,
            mean_utilization,
            mean_sm_active: self.sm_active.mean(),
            mean_tensor_active: self.tensor_active.mean(),
            mean_dram_active: self.dram_active.mean(),
            mean_power_w: self.power.mean_w(),
            throttled_samples: throttling.map(|count| count.any),
            throttle_reasons: throttling.map(|count| count.reasons.clone()),
            new_ecc_uncorrected: recording.summary.new_ecc_uncorrected,
            lost: recording.is_lost(),
            bottleneck: mean_utilization
                .filter(|_| judged)
                .map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)),
            ..self.summary
        }
    }
}
