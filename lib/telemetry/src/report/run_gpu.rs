//! The GPUs of runs.

use serde::Serialize;

use super::gpus::GpuCount;
use super::run::RunSummary;
use super::runs::RunsSummary;

/// A GPU that a run used, over the samples of that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunGpu {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The product name; `None` if no sample has it.
    pub name: Option<String>,
    /// Samples that were taken during the run.
    pub samples: u64,
    /// Mean share of the time in which a kernel ran.
    pub mean_utilization: Option<f64>,
    /// Mean power draw in watts: by the energy counter, or else the mean of the samples.
    pub mean_power_w: Option<f64>,
}

impl RunGpu {
    /// Joins a GPU of the log with its samples during the run.
    fn new(known: &GpuCount, during: Option<&GpuCount>) -> Self {
        Self {
            index: known.summary.index,
            uuid: known.summary.uuid.clone(),
            name: known.summary.name.clone(),
            samples: during.map_or(0, |gpu| gpu.summary.samples),
            mean_utilization: during.and_then(|gpu| gpu.utilization.mean()),
            mean_power_w: during.and_then(|gpu| gpu.power.mean_w()),
        }
    }
}

/// Returns the GPUs of a run: those that it names, or else all of the log; none on a CPU. `None` if unknown. `all` are
/// the GPUs of the whole log, `during` those of the samples during the run.
pub(super) fn run_gpus(
    run: &RunSummary,
    all: &[GpuCount],
    during: &[GpuCount],
) -> Option<Vec<RunGpu>> {
    let device = run.device.as_deref();
    if device == Some("cpu") {
        return Some(Vec::new());
    }
    if let Some(mut uuids) = run.gpu_uuids.clone().filter(|uuids| !uuids.is_empty()) {
        // Two workers may share a GPU.
        uuids.sort_unstable();
        uuids.dedup();
        let gpu = |uuid: String| match find_gpu(all, &uuid) {
            Some(known) => RunGpu::new(known, find_gpu(during, &uuid)),
            None => RunGpu {
                uuid: Some(uuid),
                ..RunGpu::default()
            },
        };
        return Some(uuids.into_iter().map(gpu).collect());
    }
    let gpus = all
        .iter()
        .map(|known| RunGpu::new(known, during.iter().find(|gpu| gpu.is_same(known))));
    let on_gpus = device.is_some_and(|device| device.starts_with("cuda"));
    (on_gpus && !all.is_empty()).then(|| gpus.collect())
}

/// Finds the GPU with a UUID.
pub(super) fn find_gpu<'a>(gpus: &'a [GpuCount], uuid: &str) -> Option<&'a GpuCount> {
    gpus.iter()
        .find(|gpu| gpu.summary.uuid.as_deref() == Some(uuid))
}

/// Whether a run used the GPU `uuid`. If no run names its GPUs, runs on GPUs used all.
pub(super) fn was_used(events: &RunsSummary, uuid: Option<&str>) -> bool {
    let mut on_gpus = events
        .runs
        .iter()
        .filter(|run| run.device.as_deref() != Some("cpu"))
        .peekable();
    if on_gpus.peek().is_none() {
        return events.runs.is_empty();
    }
    let mut named = on_gpus
        .filter_map(|run| run.gpu_uuids.as_ref())
        .flatten()
        .peekable();
    named.peek().is_none() || named.any(|named| Some(named.as_str()) == uuid)
}
