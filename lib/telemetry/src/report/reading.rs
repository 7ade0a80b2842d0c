//! What a row says of a GPU or of a host.

use plmkit_logs::{GpuSample, METRICS, Throttle};

use super::time_span::seconds;

/// Conditions of a GPU that hold or do not hold: it is hot, its memory is hot, foreign processes are on it, something holds its
/// clocks down, heat or the power supply does, nothing but a limit or a setting does.
#[rustfmt::skip]
const CONDITIONS: [fn(&GpuSample) -> Option<bool>; 6] = [
    |sample| Some(sample.temperature_c? > sample.hot_above_c()),
    |sample| Some(sample.mem_temperature_c? >= sample.mem_temperature_limit_c?),
    |sample| Some(sample.foreign_processes? > 0),
    |sample| Some(sample.throttle.as_ref()?.active()),
    |sample| Some(sample.throttle.as_ref()?.is_severe()),
    |sample| sample.throttle.as_ref().map(|throttle| throttle.active() && !throttle.is_severe()),
];

/// What holds of each of some conditions.
pub(super) type Conditions<T> = [T; CONDITIONS.len()];

/// The values of a row, and the time that it stands for.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading<'a> {
    /// The time since the previous reading, in microseconds.
    pub(super) us: i64,
    /// The values by their columns.
    pub(super) values: Vec<(&'static str, f64)>,
    pub(super) conditions: Conditions<Option<bool>>,
    pub(super) throttle: Option<&'a Throttle>,
    /// Joules in that time: by the counter, or its power over that time where the counter is missing.
    pub(super) joules: Option<f64>,
    /// Whether the counter rose by more than the board can draw.
    pub(super) is_jump: bool,
}

impl<'a> Reading<'a> {
    /// A reading of a GPU. `before_j` is the counter of the previous reading. A counter that stays at 0 is none. Of a driver that
    /// was reloaded, and counts from 0, and of a jump beyond `possible_w` nothing is known.
    pub(super) fn of_gpu(
        sample: &'a GpuSample,
        us: i64,
        before_j: Option<f64>,
        possible_w: f64,
    ) -> Self {
        let counters = sample.energy_j.zip(before_j);
        let counted_j = counters.filter(|&(now_j, before_j)| now_j.max(before_j) > 0.0);
        let counted_j = counted_j.map(|(now_j, before_j)| now_j - before_j);
        // A short interval may have the energy of those before it.
        let possible_j = possible_w * seconds(us).max(1.0);
        let is_possible = |joules: &f64| (0.0..=possible_j).contains(joules);
        let metrics = METRICS.iter().filter(|metric| metric.in_reports);
        let values = metrics.filter_map(|metric| Some((metric.column, (metric.value)(sample)?)));
        Self {
            us,
            values: values.collect(),
            conditions: CONDITIONS.map(|condition| condition(sample)),
            throttle: sample.throttle.as_ref(),
            joules: match counted_j {
                None => sample.power_w.map(|power_w| power_w * seconds(us)),
                counted_j => counted_j.filter(is_possible),
            },
            is_jump: us > 0 && counted_j > Some(possible_j),
        }
    }

    /// A reading of a host.
    pub(super) fn of_host(sample: &GpuSample, us: i64) -> Self {
        let memory = sample.host_mem_used_mib.map(|mib| mib as f64);
        let values = [
            ("host_cpu_util", sample.host_cpu_util),
            ("host_mem_used_mib", memory),
        ];
        let known = values.into_iter();
        Self {
            us,
            values: known
                .filter_map(|(column, value)| Some((column, value?)))
                .collect(),
            ..Self::default()
        }
    }
}
