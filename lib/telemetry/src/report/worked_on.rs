//! Which GPUs runs worked on, as far as they say.

use super::count::Count;
use super::run::RunSummary;
use super::run_gpu::RunGpu;
use super::runs::RunsSummary;

/// The GPUs of a run: those that it names, and if it names none, all of the log; none on a CPU. `None` where nothing tells.
/// `all` is what was seen of them at any time, `during` what was seen while the run was at work.
pub(super) fn gpus_of(run: &RunSummary, all: &Count, during: &Count) -> Option<Vec<RunGpu>> {
    let device = run.device.as_deref();
    if device == Some("cpu") {
        return Some(Vec::new());
    }
    if let Some(mut uuids) = run.gpu_uuids.clone().filter(|uuids| !uuids.is_empty()) {
        // Two workers may share a GPU.
        uuids.sort_unstable();
        uuids.dedup();
        let gpu = |uuid: &String| match all.by_uuid(uuid) {
            Some(known) => RunGpu::of(known, during.by_uuid(uuid)),
            None => RunGpu::unknown(uuid),
        };
        return Some(uuids.iter().map(gpu).collect());
    }
    let on_gpus = device.is_some_and(|device| device.starts_with("cuda"));
    let gpus = all.gpus.iter().map(|(key, known)| {
        let during = during
            .position(key)
            .map(|position| &during.gpus[position].1);
        RunGpu::of(known, during)
    });
    (on_gpus && !all.gpus.is_empty()).then(|| gpus.collect())
}

/// Whether a run worked on the GPU `uuid`, as far as is known.
pub(super) fn works_on(events: &RunsSummary, uuid: Option<&str>) -> bool {
    let on_gpus = || {
        events
            .runs
            .iter()
            .filter(|run| run.device.as_deref() != Some("cpu"))
    };
    let named = on_gpus().any(|run| run.gpu_uuids.is_some());
    if named {
        uuid.is_some_and(|uuid| {
            let theirs = on_gpus().filter_map(|run| run.gpu_uuids.as_ref());
            theirs.flatten().any(|theirs| theirs == uuid)
        })
    } else {
        events.runs.is_empty() || on_gpus().next().is_some()
    }
}
