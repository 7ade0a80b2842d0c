//! Warnings about full device memory.

use std::collections::HashSet;

use plmkit_logs::GpuSample;

/// Memory use must fall this far below the limit before the next warning, so that use around the limit warns once.
const MARGIN_PERCENT: f64 = 5.0;

/// Watches the memory of each GPU.
#[derive(Debug)]
pub(crate) struct MemoryWarnings {
    limit_percent: f64,
    above: HashSet<Option<u32>>,
}

impl MemoryWarnings {
    /// Warns of use above `limit_percent`.
    pub(crate) fn new(limit_percent: f64) -> Self {
        Self {
            limit_percent,
            above: HashSet::new(),
        }
    }

    /// Returns a warning for each GPU that went above the limit.
    pub(crate) fn warnings(&mut self, samples: &[GpuSample]) -> Vec<String> {
        let warnings = samples.iter().map(|sample| self.warning(sample));
        warnings.flatten().collect()
    }

    fn warning(&mut self, sample: &GpuSample) -> Option<String> {
        let (used, total) = sample.mem_used_mib.zip(sample.mem_total_mib)?;
        let percent = 100.0 * used as f64 / total as f64;
        let limit = self.limit_percent;
        if percent < limit - MARGIN_PERCENT {
            self.above.remove(&sample.index);
        }
        (percent > limit && self.above.insert(sample.index)).then(|| {
            let index = sample.index.map_or_else(String::new, |index| index.to_string());
            format!("gpu {index}: {percent:.1} % of device memory is in use, {used} of {total} MiB; expected at most {limit} %")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_warned_of_once_until_its_memory_is_free_again() {
        let sample = |index, mem_used_mib| GpuSample {
            index: Some(index),
            mem_used_mib,
            mem_total_mib: Some(1000),
            ..GpuSample::default()
        };
        let mut warnings = MemoryWarnings::new(90.0);
        let mut warned = |used| warnings.warnings(&[sample(0, Some(used))]).len();
        let counts = [900, 901, 999, 890, 950, 849, 901].map(&mut warned);
        assert_eq!(counts, [0, 1, 0, 0, 0, 0, 1]);
        let all = [sample(0, Some(990)), sample(1, Some(990)), sample(2, None)];
        let warning =
            "gpu 1: 99.0 % of device memory is in use, 990 of 1000 MiB; expected at most 90 %";
        assert_eq!(warnings.warnings(&all), [warning]);
    }
}
