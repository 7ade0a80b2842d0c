//! The GPUs of runs.

use plmkit_logs::thresholds::{COVERAGE_ABSENT_BELOW, COVERAGE_MARKED_BELOW};
use serde::Serialize;

use super::coverage::{Gap, coverage, is_enough, is_partial};
use super::energy::Energy;
use super::findings::gpu_name;
use super::gpu_count::GpuDistributions;
use super::gpus::GpuRows;
use super::run::RunSummary;
use super::stages::percent;
use super::time_span::{WorkTimes, seconds};

/// Gaps that a sentence names.
const NAMED_GAPS: usize = 3;

/// A GPU that a run used, over the time of that run. Means are weighted by time, and `None` below half coverage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Distributions of its values.
    pub distributions: GpuDistributions,
    /// Remarks for people: why figures are unknown, or of a part of the run.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

impl RunGpu {
    /// Joins a GPU of the log with its readings during a run.
    fn new(rows: &GpuRows, run: usize, times: &WorkTimes) -> Self {
        let time_us = times.time_us(|work| work.run == run);
        let count = rows.during(run).cloned().unwrap_or_default();
        let coverage = coverage(count.us, time_us);
        let mut gpu = Self {
            index: rows.index,
            uuid: rows.uuid.clone(),
            name: rows.name.clone(),
            samples: count.readings,
            coverage,
            partial: is_partial(coverage),
            gaps: rows.gaps(run, times),
            mean_utilization: count.mean_utilization(time_us),
            mean_power_w: count.energy.mean_w(time_us),
            energy: count.energy.finish(time_us),
            shared_s: seconds(count.shared_us),
            distributions: count.distributions(time_us),
            notes: Vec::new(),
        };
        gpu.notes = gpu.remarks();
        gpu
    }

    fn remarks(&self) -> Vec<String> {
        let name = gpu_name(self.index, self.name.as_deref());
        let mut notes: Vec<String> = self.coverage_note(&name).into_iter().collect();
        let below = |coverage: f64| match coverage {
            _ if coverage < COVERAGE_ABSENT_BELOW => "it is left out",
            _ if coverage < COVERAGE_MARKED_BELOW => "it is of that part",
            _ => "it is complete",
        };
        let values = self.distributions.less_covered(self.coverage);
        notes.extend(values.into_iter().map(|(value, coverage)| {
            let (share, effect) = (percent(coverage), below(coverage));
            format!("{name}: its {value} is known for {share} of the run: {effect}")
        }));
        if self.shared_s > 0.0 {
            notes.push(format!(
                "{name}: other runs were at work on it for {:.1} s: each has an equal part of its energy in that time",
                self.shared_s
            ));
        }
        notes
    }

    fn coverage_note(&self, name: &str) -> Option<String> {
        let Some(coverage) = self.coverage else {
            return Some(format!(
                "{name}: its figures are unknown: the events do not tell when the run was at work"
            ));
        };
        let effect = match coverage {
            _ if !is_partial(self.coverage) => return None,
            0.0 => "its figures are unknown",
            _ if !is_enough(self.coverage) => "too little for its figures",
            _ => "its figures are of that part, and its energy is scaled to the run",
        };
        let mut longest: Vec<&Gap> = self.gaps.iter().collect();
        longest
            .sort_by(|one, other| (other.to_s - other.from_s).total_cmp(&(one.to_s - one.from_s)));
        longest.truncate(NAMED_GAPS);
        longest.sort_by(|one, other| one.from_s.total_cmp(&other.from_s));
        let gaps = longest.iter();
        let gaps = gaps.map(|gap| format!("from {:.1} to {:.1} s", gap.from_s, gap.to_s));
        let gaps: Vec<String> = gaps.collect();
        Some(format!(
            "{name}: its samples cover {} of the run, {effect}; they are missing {}",
            percent(coverage),
            gaps.join(", ")
        ))
    }
}

/// Whether a run computed on the GPU `uuid`: one that it names, or any if it names none and is not on a CPU.
pub(super) fn uses_gpu(
    device: Option<&str>,
    gpu_uuids: Option<&[String]>,
    uuid: Option<&str>,
) -> bool {
    match gpu_uuids.filter(|uuids| !uuids.is_empty()) {
        Some(uuids) => uuids.iter().any(|named| Some(named.as_str()) == uuid),
        None => device != Some("cpu"),
    }
}

/// Returns the GPUs of a run: those that it names, or else all of the log; none on a CPU. `None` if unknown. `position` is
/// that of the run among all.
pub(super) fn run_gpus(
    run: &RunSummary,
    position: usize,
    all: &[GpuRows],
    times: &WorkTimes,
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
            Some(rows) => RunGpu::new(rows, position, times),
            None => RunGpu {
                notes: (!all.is_empty())
                    .then(|| {
                        format!("{uuid}: its figures are unknown: the log has no samples of it")
                    })
                    .into_iter()
                    .collect(),
                uuid: Some(uuid),
                ..RunGpu::default()
            },
        };
        return Some(uuids.into_iter().map(gpu).collect());
    }
    let gpus = all.iter().map(|rows| RunGpu::new(rows, position, times));
    let on_gpus = device.is_some_and(|device| device.starts_with("cuda"));
    (on_gpus && !all.is_empty()).then(|| gpus.collect())
}

/// Finds the GPU with a UUID.
pub(super) fn find_gpu<'a>(gpus: &'a [GpuRows], uuid: &str) -> Option<&'a GpuRows> {
    gpus.iter().find(|gpu| gpu.uuid.as_deref() == Some(uuid))
}
