//! The GPUs of runs, as far as runs say which they are.

use serde::Serialize;

use super::gpus::GpuCount;
use super::run::RunSummary;
use super::runs::RunsSummary;

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
    /// A GPU of the log, and what was seen of it during the run.
    fn new(known: &GpuCount, during: Option<&GpuCount>) -> Self {
        Self {
            index: known.index,
            uuid: known.uuid.clone(),
            name: known.name.clone(),
            samples: during.map_or(0, |gpu| gpu.samples),
            mean_utilization: during.and_then(|gpu| gpu.utilization.mean()),
            mean_power_w: during.and_then(|gpu| gpu.power.mean_w()),
        }
    }
}

/// The GPUs of a run: those that it names, and if it names none, all of the log; none on a CPU. `None` where nothing tells.
/// `all` is what was seen of them at any time, `during` what was seen while the run was at work.
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
    let same =
        |one: &GpuCount, other: &GpuCount| (&one.uuid, one.index) == (&other.uuid, other.index);
    let gpus = all
        .iter()
        .map(|known| RunGpu::new(known, during.iter().find(|gpu| same(gpu, known))));
    let on_gpus = device.is_some_and(|device| device.starts_with("cuda"));
    (on_gpus && !all.is_empty()).then(|| gpus.collect())
}

/// The GPU with a UUID.
pub(super) fn find_gpu<'a>(gpus: &'a [GpuCount], uuid: &str) -> Option<&'a GpuCount> {
    gpus.iter().find(|gpu| gpu.uuid.as_deref() == Some(uuid))
}

/// Whether a run worked on the GPU `uuid`, as far as is known.
pub(super) fn worked_on(events: &RunsSummary, uuid: Option<&str>) -> bool {
    let runs = events.runs.iter();
    let on_gpus: Vec<_> = runs
        .filter(|run| run.device.as_deref() != Some("cpu"))
        .collect();
    let mut named = on_gpus
        .iter()
        .filter_map(|run| run.gpu_uuids.as_ref())
        .peekable();
    if named.peek().is_none() {
        return events.runs.is_empty() || !on_gpus.is_empty();
    }
    uuid.is_some_and(|uuid| named.flatten().any(|theirs| theirs == uuid))
}
