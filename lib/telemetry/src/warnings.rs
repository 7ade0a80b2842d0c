//! Live warnings about GPUs: full memory, heat, clocks held down, low utilisation.

use std::collections::HashMap;

use plmkit_logs::GpuSample;
use plmkit_logs::thresholds::GPU_CRITICAL_BELOW;

use crate::report::gpu_name;

/// Memory use must fall this far below the limit before the next warning, so that use around the limit warns once.
const MEMORY_MARGIN_PERCENT: f64 = 5.0;

/// The same for the temperature.
const HEAT_MARGIN_C: u32 = 5;

/// The same for the mean utilisation of a minute.
const IDLE_MARGIN: f64 = 0.05;

/// The time of a mean utilisation, and the time after which clocks that nothing holds down count as free.
const MINUTE_S: f64 = 60.0;

/// Watches the GPUs of a recording. Reads no clock: time is that of the samples.
#[derive(Debug)]
pub(crate) struct Warnings {
    memory_limit_percent: f64,
    /// Whether a command is recorded. Without one, nobody says that a GPU should be busy.
    has_command: bool,
    /// By index and UUID: MIG instances have the index of their GPU.
    gpus: HashMap<(Option<u32>, Option<String>), Gpu>,
}

#[derive(Debug, Default)]
struct Gpu {
    warned_of: WarnedOf,
    /// The time at which the clocks were held down last.
    throttled_s: Option<f64>,
    /// Whether the command has computed on the GPU.
    is_used: bool,
    minute: Option<Minute>,
}

/// What was warned of, and is not over.
#[derive(Debug, Default)]
struct WarnedOf {
    memory: bool,
    heat: bool,
    idleness: bool,
}

/// Utilisation since a moment, in seconds.
#[derive(Debug)]
struct Minute {
    from: f64,
    to: f64,
    busy: f64,
}

impl Minute {
    fn from(now_s: f64) -> Self {
        Self {
            from: now_s,
            to: now_s,
            busy: 0.0,
        }
    }
}

impl Warnings {
    /// Warns of device memory above `memory_limit_percent`, of heat and of throttling; with `has_command`, of low utilisation.
    pub(crate) fn new(memory_limit_percent: f64, has_command: bool) -> Self {
        Self {
            memory_limit_percent,
            has_command,
            gpus: HashMap::new(),
        }
    }

    /// Returns the warnings that begin with these samples, one of each GPU. Each comes once until it is over.
    pub(crate) fn warnings(&mut self, samples: &[GpuSample]) -> Vec<String> {
        let mut found = Vec::new();
        for sample in samples {
            let id = (sample.index, sample.uuid.clone());
            let gpu = self.gpus.entry(id).or_default();
            let now_s = sample
                .boot_s
                .unwrap_or_else(|| sample.timestamp.unix_ms() as f64 / 1000.0);
            let idle = self
                .has_command
                .then(|| gpu.warn_of_idleness(sample, now_s));
            let warnings = [
                gpu.warn_of_memory(sample, self.memory_limit_percent),
                gpu.warn_of_heat(sample),
                gpu.warn_of_throttling(sample, now_s),
                idle.flatten(),
            ];
            let name = gpu_name(sample.index, sample.name.as_deref());
            let warnings = warnings.into_iter().flatten();
            found.extend(warnings.map(|warning| format!("{name}: {warning}")));
        }
        found
    }
}

impl Gpu {
    fn warn_of_memory(&mut self, sample: &GpuSample, limit: f64) -> Option<String> {
        let (used, total) = sample.mem_used_mib.zip(sample.mem_total_mib)?;
        let percent = 100.0 * used as f64 / total as f64;
        let is_over = percent < limit - MEMORY_MARGIN_PERCENT;
        begins(&mut self.warned_of.memory, percent > limit, is_over).then(|| {
            format!("{percent:.1} % of device memory is in use, {used} of {total} MiB; expected at most {limit} %")
        })
    }

    fn warn_of_heat(&mut self, sample: &GpuSample) -> Option<String> {
        let celsius = sample.temperature_c?;
        let limit = sample.hot_above_c();
        let is_over = celsius + HEAT_MARGIN_C < limit;
        begins(&mut self.warned_of.heat, celsius > limit, is_over)
            .then(|| format!("{celsius} °C; expected at most {limit} °C: look at cooling"))
    }

    /// A power limit holds the clocks of every busy GPU down, so only reasons that protect the hardware count.
    fn warn_of_throttling(&mut self, sample: &GpuSample, now_s: f64) -> Option<String> {
        let severe: Vec<&str> = sample.throttle.as_ref()?.severe().collect();
        if severe.is_empty() {
            return None;
        }
        let before_s = self.throttled_s.replace(now_s);
        let is_new = before_s.is_none_or(|before_s| now_s - before_s >= MINUTE_S);
        let clock = sample
            .sm_clock_mhz
            .map_or_else(String::new, |clock| format!(" at {clock} MHz"));
        is_new.then(|| {
            format!(
                "clocks are held down{clock} ({}): look at cooling and power cables",
                severe.join(", ")
            )
        })
    }

    fn warn_of_idleness(&mut self, sample: &GpuSample, now_s: f64) -> Option<String> {
        let processes = sample
            .processes
            .as_ref()
            .map_or(0, |processes| processes.0.len());
        let own = processes.saturating_sub(sample.foreign_processes.unwrap_or(0) as usize);
        // While a model is loaded, nothing computes yet.
        self.is_used |= own > 0 && sample.gpu_util > Some(0);
        let Some(percent) = sample.gpu_util.filter(|_| self.is_used) else {
            self.minute = None;
            return None;
        };
        let minute = self.minute.get_or_insert(Minute::from(now_s));
        // A reading stands for the time since the previous one.
        minute.busy += (now_s - minute.to) * f64::from(percent) / 100.0;
        minute.to = now_s;
        let seconds = now_s - minute.from;
        if seconds < MINUTE_S {
            return None;
        }
        let mean = minute.busy / seconds;
        *minute = Minute::from(now_s);
        let is_over = mean >= GPU_CRITICAL_BELOW + IDLE_MARGIN;
        begins(&mut self.warned_of.idleness, mean < GPU_CRITICAL_BELOW, is_over).then(|| {
            format!(
                "{:.1} % mean utilization in the last {seconds:.0} s; expected at least {:.0} %: the command does not keep it busy",
                100.0 * mean,
                100.0 * GPU_CRITICAL_BELOW
            )
        })
    }
}

/// Whether a state begins, given whether it `is_there` and whether it `is_over`. Between the two, it stays as it was.
fn begins(state: &mut bool, is_there: bool, is_over: bool) -> bool {
    let was_there = *state;
    *state = is_there || was_there && !is_over;
    is_there && !was_there
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    /// The warnings about a sample a second, given the change of each.
    fn warned<T: Copy>(values: &[T], change: impl Fn(&mut GpuSample, T)) -> Vec<Vec<String>> {
        let mut warnings = Warnings::new(90.0, true);
        let all = values.iter().enumerate().map(|(second, &value)| {
            let mut sample = sample(0, |sample| change(sample, value));
            sample.boot_s = Some(second as f64);
            warnings.warnings(&[sample])
        });
        all.collect()
    }

    fn counts(warned: &[Vec<String>]) -> Vec<usize> {
        warned.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_gpu_is_warned_of_once_until_its_memory_is_free_again() {
        let used = [900, 901, 999, 890, 950, 849, 901];
        let found = warned(&used, |sample, used| {
            (sample.mem_used_mib, sample.mem_total_mib) = (Some(used), Some(1000));
        });
        assert_eq!(counts(&found), [0, 1, 0, 0, 0, 0, 1]);
        let text = "gpu 0 (Fake): 90.1 % of device memory is in use, 901 of 1000 MiB; expected at most 90 %";
        assert_eq!(found[1], [text]);
    }

    #[test]
    fn a_gpu_is_warned_of_once_until_it_is_cool_again() {
        let found = warned(&[80, 81, 90, 75, 81, 74, 82], |sample, celsius| {
            sample.temperature_c = Some(celsius);
        });
        assert_eq!(counts(&found), [0, 1, 0, 0, 0, 0, 1]);
        let text = "gpu 0 (Fake): 82 °C; expected at most 80 °C: look at cooling";
        assert_eq!(found[6], [text]);
    }

    #[test]
    fn clocks_that_were_free_for_a_minute_are_warned_of_again_and_a_power_limit_is_no_finding() {
        let reasons = |second: usize| match second {
            0 => "sw_power_cap",
            1 | 60 | 121 => "sw_power_cap+hw_slowdown",
            _ => "none",
        };
        let seconds: Vec<usize> = (0..130).collect();
        let found = warned(&seconds, |sample, second| {
            sample.throttle = reasons(second).parse().ok();
            sample.sm_clock_mhz = Some(900);
        });
        let when: Vec<usize> = (0..130)
            .filter(|&second| !found[second].is_empty())
            .collect();
        assert_eq!(when, [1, 121]);
        let text = "gpu 0 (Fake): clocks are held down at 900 MHz (hw_slowdown): look at cooling and power cables";
        assert_eq!(found[1], [text]);
    }

    /// The seconds in which there is a warning about a GPU with this utilisation in each minute, after a start without any.
    fn idle_at(minutes: &[u32], processes: &'static str, foreign: Option<u32>) -> Vec<usize> {
        let start = [0; 100];
        let minutes = minutes.iter().flat_map(|&percent| [percent; 60]);
        let percents: Vec<u32> = start.into_iter().chain(minutes).collect();
        let found = warned(&percents, |sample, percent| {
            sample.gpu_util = Some(percent);
            sample.processes = processes.parse().ok();
            sample.foreign_processes = foreign;
        });
        (0..found.len())
            .filter(|&second| !found[second].is_empty())
            .collect()
    }

    #[test]
    fn a_minute_below_half_is_warned_of_once_until_the_gpu_is_busy_again() {
        let own = "7:100:50";
        assert_eq!(idle_at(&[50, 50, 50], own, Some(0)), [0; 0]);
        // The first minute begins in second 100. Its last reading is the first of the next value.
        assert_eq!(
            idle_at(&[49, 49, 52, 49, 56, 49, 49], own, None),
            [160, 460]
        );
        // A neighbour that the command does not use.
        assert_eq!(idle_at(&[10, 10], "none", Some(0)), [0; 0]);
        assert_eq!(idle_at(&[10, 10], own, Some(1)), [0; 0]);
    }

    #[test]
    fn a_minute_is_one_by_the_time_of_the_samples() {
        let mut warnings = Warnings::new(90.0, true);
        let mut warned = |second: f64, percent| {
            let mut sample = sample(0, |sample| {
                sample.gpu_util = Some(percent);
                sample.processes = "7:100:50".parse().ok();
            });
            sample.boot_s = Some(second);
            warnings.warnings(&[sample])
        };
        // 40 readings of 20 ms, all busy, and then two that stand for most of the minute.
        for reading in 0..=40 {
            assert_eq!(warned(f64::from(reading) * 0.02, 100), [""; 0]);
        }
        assert_eq!(warned(30.8, 20), [""; 0]);
        let text = "gpu 0 (Fake): 21.1 % mean utilization in the last 61 s; expected at least 50 %: the command does not keep it busy";
        assert_eq!(warned(60.8, 20), [text]);
        let mut without_command = Warnings::new(90.0, false);
        let idle = |second| sample(second, |sample| sample.gpu_util = Some(1));
        assert_eq!(without_command.warnings(&[idle(0)]), [""; 0]);
        assert_eq!(without_command.warnings(&[idle(59)]), [""; 0]);
    }
}
