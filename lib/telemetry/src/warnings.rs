//! Live warnings about GPUs: full memory, heat, clocks held down.

use std::collections::HashMap;

use plmkit_logs::GpuSample;

use crate::report::gpu_name;

/// Memory use must fall this far below the limit before the next warning, so that use around the limit warns once.
const MEMORY_MARGIN_PERCENT: f64 = 5.0;

/// The same for the temperature.
const HEAT_MARGIN_C: u32 = 5;

/// The time after which clocks that nothing holds down count as free.
const MINUTE_S: f64 = 60.0;

/// Watches the GPUs of a recording. Reads no clock: time is that of the samples.
#[derive(Debug)]
pub(crate) struct Warnings {
    memory_limit_percent: f64,
    /// By index and UUID: MIG instances have the index of their GPU.
    gpus: HashMap<(Option<u32>, Option<String>), Gpu>,
}

/// What was warned of, and is not over.
#[derive(Debug, Default)]
struct Gpu {
    is_full: bool,
    is_hot: bool,
    /// The time at which the clocks were held down last.
    throttled_s: Option<f64>,
}

impl Warnings {
    /// Warns of device memory above `memory_limit_percent`, of heat and of throttling.
    pub(crate) fn new(memory_limit_percent: f64) -> Self {
        Self {
            memory_limit_percent,
            gpus: HashMap::new(),
        }
    }

    /// Returns the warnings that begin with these samples, one of each GPU. Each comes once until it is over.
    pub(crate) fn warnings(&mut self, samples: &[GpuSample]) -> Vec<String> {
        let mut found = Vec::new();
        for sample in samples {
            let id = (sample.index, sample.uuid.clone());
            let gpu = self.gpus.entry(id).or_default();
            let warnings = [
                gpu.warn_of_memory(sample, self.memory_limit_percent),
                gpu.warn_of_heat(sample),
                gpu.warn_of_throttling(sample),
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
        begins(&mut self.is_full, percent > limit, is_over).then(|| {
            format!("{percent:.1} % of device memory is in use, {used} of {total} MiB; expected at most {limit} %")
        })
    }

    fn warn_of_heat(&mut self, sample: &GpuSample) -> Option<String> {
        let celsius = sample.temperature_c?;
        let limit = sample.hot_above_c();
        let is_over = celsius + HEAT_MARGIN_C < limit;
        begins(&mut self.is_hot, celsius > limit, is_over)
            .then(|| format!("{celsius} °C; expected at most {limit} °C: look at cooling"))
    }

    /// A power limit holds the clocks of every busy GPU down, so only reasons that protect the hardware count.
    fn warn_of_throttling(&mut self, sample: &GpuSample) -> Option<String> {
        let severe: Vec<&str> = sample.throttle.as_ref()?.severe().collect();
        if severe.is_empty() {
            return None;
        }
        let time_s = sample.timestamp.unix_ms() as f64 / 1000.0;
        let now_s = sample.boot_s.unwrap_or(time_s);
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
        let mut warnings = Warnings::new(90.0);
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
}
