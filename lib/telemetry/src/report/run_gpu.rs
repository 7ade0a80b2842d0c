//! The GPUs of runs.

use plmkit_contract::plural;
use serde::Serialize;

use super::coverage::is_enough;
use super::energy::Energy;
use super::gpu_figures::GpuFigures;
use super::gpus::GpuRows;
use super::percent;
use super::readings::During;
use super::run::RunSummary;
use super::time_span::{WorkTimes, seconds};

/// A GPU that a run used, over the time of that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunGpu {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The product name; `None` if no sample has it.
    pub name: Option<String>,
    /// Its figures over the run; of a run with fewer than three readings, only their number and their coverage.
    #[serde(flatten)]
    pub figures: GpuFigures,
    /// Its energy over the run.
    pub energy: Energy,
    /// Seconds of the readings in which other runs were at work on it, too.
    pub shared_s: f64,
    /// Remarks for people: why figures are unknown, or of a part of the run.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

impl RunGpu {
    /// Joins a GPU of the log with its readings during a run.
    fn new(rows: &GpuRows, run: usize, times: &WorkTimes) -> Self {
        let gpu = &rows.gpu;
        let on_it = times
            .positions_of(run)
            .filter(|&position| times.uses(position, gpu.uuid.as_deref()));
        let time_us = times.time_us(on_it);
        let count = rows.during(During::Run(run));
        let figures = count.figures_of_runs(time_us);
        let shared_s = seconds(count.shared_us);
        let few = is_enough(figures.coverage) && !count.is_enough_for_a_run();
        let few = few.then(|| {
            let samples = plural(count.readings, "sample");
            format!(
                "{samples} in the run, too few for its figures: record with a shorter --interval"
            )
        });
        let shared = (shared_s > 0.0).then(|| {
            format!(
                "other runs were at work on it for {shared_s:.1} s: each has an equal part of its energy in that time"
            )
        });
        let notes = [
            coverage_note(figures.coverage, figures.partial),
            few,
            shared,
        ];
        let notes = notes.into_iter().flatten();
        let name = gpu.label();
        Self {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            notes: notes.map(|note| format!("{name}: {note}")).collect(),
            figures,
            energy: count.energy(time_us),
            shared_s,
        }
    }
}

/// Explains the figures of a run that was not seen for all of its time.
fn coverage_note(coverage: Option<f64>, is_partial: bool) -> Option<String> {
    let Some(share) = coverage else {
        let unknown = "its figures are unknown: the events do not tell when the run was at work";
        return Some(unknown.to_owned());
    };
    let effect = match share {
        0.0 => "its figures are unknown",
        _ if !is_enough(coverage) => "too little to give figures",
        _ => "its figures are of that part, and its energy is scaled to the run",
    };
    let share = percent(share);
    is_partial.then(|| format!("its samples cover {share} of the run, {effect}"))
}

/// Returns the GPUs of a run: those that it names, or else the only one of the log; none on a CPU. `None` if unknown. `position`
/// is that of the run among all, and `found` finds a GPU by its UUID.
pub(super) fn run_gpus<'a>(
    run: &RunSummary,
    position: usize,
    all: &[GpuRows],
    found: impl Fn(&str) -> Option<&'a GpuRows>,
    times: &WorkTimes,
) -> Option<Vec<RunGpu>> {
    if let Some(mut uuids) = run.gpu_uuids.clone().filter(|uuids| !uuids.is_empty()) {
        uuids.sort_unstable();
        let gpu = |uuid: String| {
            if let Some(rows) = found(&uuid) {
                return RunGpu::new(rows, position, times);
            }
            let note = format!("{uuid}: its figures are unknown: the log has no samples of it");
            RunGpu {
                uuid: Some(uuid),
                notes: Some(note).filter(|_| !all.is_empty()).into_iter().collect(),
                ..RunGpu::default()
            }
        };
        return Some(uuids.into_iter().map(gpu).collect());
    }
    let device = run.device.as_deref()?;
    match (device, all) {
        ("cpu", _) => Some(Vec::new()),
        (_, [only]) if device.starts_with("cuda") => Some(vec![RunGpu::new(only, position, times)]),
        _ => None,
    }
}
