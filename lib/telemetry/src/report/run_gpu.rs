//! A GPU of a run.

use serde::Serialize;

use super::gpus::GpuCount;

/// A GPU that a run worked on, over the samples of that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunGpu {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its lasting name.
    pub uuid: Option<String>,
    /// The product; `None` where no sample tells.
    pub name: Option<String>,
    /// Samples that were taken while the run was at work.
    pub samples: u64,
    /// Mean share of the time in which a kernel ran.
    pub mean_utilization: Option<f64>,
    /// Mean power draw in watts: by the counter of energy, or else the mean of the samples.
    pub mean_power_w: Option<f64>,
}

impl RunGpu {
    /// A GPU of which no sample tells.
    pub(super) fn unknown(uuid: &str) -> Self {
        Self {
            uuid: Some(uuid.to_owned()),
            ..Self::default()
        }
    }

    /// A GPU of the log, and what was seen of it during the run.
    pub(super) fn of(known: &GpuCount, during: Option<&GpuCount>) -> Self {
        Self {
            index: known.index,
            uuid: known.uuid.clone(),
            name: known.name.clone(),
            samples: during.map_or(0, |gpu| gpu.samples),
            mean_utilization: during.and_then(|gpu| gpu.utilization.mean()),
            mean_power_w: during.and_then(GpuCount::mean_power_w),
        }
    }
}
