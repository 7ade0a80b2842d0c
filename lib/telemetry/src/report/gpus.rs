//! One GPU over a recording.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Tier;
use super::energy::Energy;
use super::held::Held;
use super::mean::Mean;
use super::thresholds::{GPU_CRITICAL_BELOW, GPU_HOT_ABOVE_C, GPU_MILD_BELOW, GPU_MIN_SAMPLES};
use crate::GpuSample;

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
    pub(super) held: Held,
}

/// Samples of one GPU.
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
    energy: Energy,
    peak_mem_used_mib: Option<u64>,
    mem_total_mib: Option<u64>,
    max_temperature_c: Option<u32>,
    hot: Option<u64>,
    held: Held,
    foreign: Option<u64>,
}

/// What concerns the whole recording, whatever runs there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    /// Memory errors that came up.
    pub(super) new_ecc_uncorrected: Option<u64>,
    /// Whether values ended while the recording went on, or never came.
    pub(super) lost: bool,
}

impl GpuCount {
    /// Takes in a sample of a recording.
    pub(super) fn add(&mut self, sample: &GpuSample, recording: usize) {
        self.know(sample.index, sample.uuid.as_ref(), sample.name.as_ref());
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
        self.energy.add(sample, recording);
        if let Some(throttle) = &sample.throttle {
            self.held.add(throttle);
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
    }

    /// Takes in what was seen of the same GPU at another time.
    pub(super) fn merge(&mut self, other: &Self) {
        self.know(other.index, other.uuid.as_ref(), other.name.as_ref());
        self.samples += other.samples;
        for (mean, other) in [
            (&mut self.utilization, &other.utilization),
            (&mut self.sm_active, &other.sm_active),
            (&mut self.tensor_active, &other.tensor_active),
            (&mut self.dram_active, &other.dram_active),
        ] {
            mean.merge(other);
        }
        self.energy.merge(&other.energy);
        self.held.merge(&other.held);
        self.hot = sum(self.hot, other.hot);
        self.foreign = sum(self.foreign, other.foreign);
        self.peak_mem_used_mib = self.peak_mem_used_mib.max(other.peak_mem_used_mib);
        self.mem_total_mib = self.mem_total_mib.max(other.mem_total_mib);
        self.max_temperature_c = self.max_temperature_c.max(other.max_temperature_c);
    }

    /// A name may come late: a lost GPU has none at first.
    fn know(&mut self, index: Option<u32>, uuid: Option<&String>, name: Option<&String>) {
        self.index = self.index.or(index);
        if self.uuid.is_none() {
            self.uuid = uuid.cloned();
        }
        if self.name.is_none() {
            self.name = name.cloned();
        }
    }

    pub(super) fn mean_power_w(&self) -> Option<f64> {
        self.energy.mean_power_w()
    }

    pub(super) fn finish(self, in_run: bool, health: Health) -> GpuSummary {
        let enough = self.utilization.count >= GPU_MIN_SAMPLES;
        let mean_utilization = self.utilization.mean();
        let judged = mean_utilization.filter(|_| in_run && enough);
        let says = self.held.samples > 0;
        GpuSummary {
            mean_power_w: self.mean_power_w(),
            index: self.index,
            uuid: self.uuid,
            name: self.name,
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
            throttled_samples: says.then_some(self.held.any),
            throttle_reasons: says.then(|| self.held.reasons.clone()),
            foreign_samples: self.foreign,
            new_ecc_uncorrected: health.new_ecc_uncorrected,
            lost: health.lost,
            bottleneck: judged.map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)),
            held: self.held,
        }
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other)
        .map(|(one, other)| one + other)
        .or(one)
        .or(other)
}
