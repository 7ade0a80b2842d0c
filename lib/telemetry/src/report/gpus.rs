//! One GPU over a recording.

use serde::Serialize;

use super::Tier;
use super::mean::Mean;
use super::stages::percent;
use super::thresholds::{GPU_CRITICAL_BELOW, GPU_MILD_BELOW, GPU_MIN_SAMPLES};
use crate::GpuSample;

/// One GPU over the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The most device memory in use.
    pub peak_mem_used_mib: Option<u64>,
    /// Device memory.
    pub mem_total_mib: Option<u64>,
    /// The highest temperature.
    pub max_temperature_c: Option<u32>,
    /// Mean power draw.
    pub mean_power_w: Option<f64>,
    /// Samples in which something held the clocks down; `None` where the driver does not say.
    pub throttled_samples: Option<u64>,
    /// The tier of the mean utilisation; `None` on a GPU without a run, with fewer than
    /// [`GPU_MIN_SAMPLES`] samples, or where the driver gives no utilisation.
    pub bottleneck: Option<Tier>,
    /// What to do.
    pub advice: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct GpuCount {
    index: Option<u32>,
    uuid: Option<String>,
    name: Option<String>,
    samples: u64,
    utilization: Mean,
    power_w: Mean,
    peak_mem_used_mib: Option<u64>,
    mem_total_mib: Option<u64>,
    max_temperature_c: Option<u32>,
    throttled: Option<u64>,
}

impl GpuCount {
    pub(super) fn add(&mut self, sample: &GpuSample) {
        if self.samples == 0 {
            self.index = sample.index;
            self.uuid.clone_from(&sample.uuid);
            self.name.clone_from(&sample.name);
        }
        self.samples += 1;
        if let Some(percent) = sample.gpu_util {
            self.utilization.add(f64::from(percent) / 100.0);
        }
        if let Some(watts) = sample.power_w {
            self.power_w.add(watts);
        }
        if let Some(throttle) = &sample.throttle {
            *self.throttled.get_or_insert(0) += u64::from(throttle.active());
        }
        self.peak_mem_used_mib = self.peak_mem_used_mib.max(sample.mem_used_mib);
        self.mem_total_mib = self.mem_total_mib.max(sample.mem_total_mib);
        self.max_temperature_c = self.max_temperature_c.max(sample.temperature_c);
    }

    pub(super) fn finish(self, in_run: bool) -> GpuSummary {
        let enough = self.utilization.count >= GPU_MIN_SAMPLES;
        let mean_utilization = self.utilization.mean();
        let judged = mean_utilization.filter(|_| in_run && enough);
        let bottleneck = judged.map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW));
        GpuSummary {
            index: self.index,
            uuid: self.uuid,
            name: self.name,
            in_run,
            samples: self.samples,
            mean_utilization,
            peak_mem_used_mib: self.peak_mem_used_mib,
            mem_total_mib: self.mem_total_mib,
            max_temperature_c: self.max_temperature_c,
            mean_power_w: self.power_w.mean(),
            throttled_samples: self.throttled,
            bottleneck,
            advice: bottleneck
                .zip(judged)
                .map(|(tier, mean)| advice(tier, mean)),
        }
    }
}

fn advice(tier: Tier, mean: f64) -> String {
    let what = match tier {
        Tier::None => "the GPU was kept busy",
        Tier::Mild => "the GPU was idle part of the time: see waits and writing",
        Tier::Critical => {
            "the GPU was idle most of the time: something else is the bottleneck, see waits and writing"
        }
    };
    format!("{what} (mean utilization {})", percent(mean))
}
