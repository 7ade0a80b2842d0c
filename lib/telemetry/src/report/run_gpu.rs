//! The GPUs of runs.

use plmkit_contract::plural;
use serde::Serialize;

use plmkit_logs::thresholds::RUN_MIN_READINGS;

use super::coverage::{Gap, coverage, is_enough, is_partial};
use super::energy::Energy;
use super::gpu_count::GpuValues;
use super::gpus::GpuRows;
use super::run::RunSummary;
use super::time_span::{WorkTimes, seconds};
use super::{joined, percent};

/// Gaps of a GPU in a run that are listed, the longest.
const MAX_GAPS: usize = 8;

/// Gaps that a sentence names.
const NAMED_GAPS: usize = 3;

/// A GPU that a run used, over the time of that run. Means are weighted by time, and `None` below half coverage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunGpu {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The product name; `None` if no sample has it.
    pub name: Option<String>,
    /// Readings that stand for a part of the run.
    pub samples: u64,
    /// The share of the run that readings stand for; `None` if it is unknown when the run was at work.
    pub coverage: Option<f64>,
    /// Whether the coverage is too low for figures of the whole run: below 90 %.
    pub partial: bool,
    /// The longest times of the run that no reading stands for, at most eight.
    pub gaps: Vec<Gap>,
    /// Mean share of the time in which a kernel ran.
    pub mean_utilization: Option<f64>,
    /// Mean power draw in watts: by the energy counter, or else the mean of the readings.
    pub mean_power_w: Option<f64>,
    /// Its energy over the run.
    pub energy: Energy,
    /// Seconds of the readings in which other runs were at work on it, too.
    pub shared_s: f64,
    /// Its values over the time of the run.
    pub values: GpuValues,
    /// Remarks for people: why figures are unknown, or of a part of the run.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

impl RunGpu {
    /// Joins a GPU of the log with its readings during a run.
    fn new(rows: &GpuRows, run: usize, times: &WorkTimes) -> Self {
        let uuid = rows.gpu.uuid.as_deref();
        let on_it = times
            .positions_of(run)
            .filter(|&position| times.uses(position, uuid));
        let time_us = times.time_us(on_it);
        let count = rows.during(run).cloned().unwrap_or_default();
        let is_enough_read = count.readings >= RUN_MIN_READINGS;
        let coverage = coverage(count.us, time_us);
        let gaps = rows.gaps(run, times);
        let all_gaps = gaps.len();
        let gpu = Self {
            index: rows.gpu.index,
            uuid: rows.gpu.uuid.clone(),
            name: rows.gpu.name.clone(),
            samples: count.readings,
            coverage,
            partial: is_partial(coverage),
            gaps: Gap::longest(gaps, MAX_GAPS),
            mean_utilization: count.mean_utilization(time_us).filter(|_| is_enough_read),
            mean_power_w: count.energy.mean_w(time_us).filter(|_| is_enough_read),
            energy: count.energy.finish(time_us).of_readings(count.readings),
            shared_s: seconds(count.shared_us),
            values: if is_enough_read {
                count.values(time_us)
            } else {
                GpuValues::new()
            },
            notes: Vec::new(),
        };
        let few = (is_enough(coverage) && !is_enough_read).then(|| {
            let samples = plural(count.readings, "sample");
            format!(
                "{samples} in the run, too few for its figures: record with a shorter --interval"
            )
        });
        let values = count.less_covered(time_us).into_iter();
        let values = values.map(|(value, coverage)| {
            let effect = match Some(coverage) {
                part if !is_enough(part) => "it is left out",
                part if is_partial(part) => "it is of that part",
                _ => "it is complete",
            };
            let share = percent(coverage);
            format!("its {value} is known for {share} of the run: {effect}")
        });
        let shared = (gpu.shared_s > 0.0).then(|| format!(
            "other runs were at work on it for {:.1} s: each has an equal part of its energy in that time",
            gpu.shared_s
        ));
        let notes = gpu
            .coverage_note(all_gaps)
            .into_iter()
            .chain(few)
            .chain(values)
            .chain(shared);
        let name = rows.gpu.label();
        Self {
            notes: notes.map(|note| format!("{name}: {note}")).collect(),
            ..gpu
        }
    }

    fn coverage_note(&self, all_gaps: usize) -> Option<String> {
        let Some(coverage) = self.coverage else {
            let unknown =
                "its figures are unknown: the events do not tell when the run was at work";
            return Some(unknown.to_owned());
        };
        let effect = match coverage {
            _ if !is_partial(self.coverage) => return None,
            0.0 => "its figures are unknown",
            _ if !is_enough(self.coverage) => "too little to give figures",
            _ => "its figures are of that part, and its energy is scaled to the run",
        };
        let gaps = Gap::longest(self.gaps.clone(), NAMED_GAPS).into_iter();
        let gaps = gaps.map(|gap| format!("from {:.1} to {:.1} s", gap.from_s, gap.to_s));
        let others = Some(all_gaps.saturating_sub(NAMED_GAPS)).filter(|&others| others > 0);
        let others = others.map(|others| format!("and in {} more", plural(others, "gap")));
        let gaps = joined(gaps.map(Some).chain([others]), ", ");
        let share = percent(coverage);
        Some(format!(
            "its samples cover {share} of the run, {effect}; they are missing {gaps}"
        ))
    }
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
