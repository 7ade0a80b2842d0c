//! Device memory that runs out.

use std::collections::HashSet;

use plmkit_logs::GpuSample;

/// How far memory use has to fall below the limit before the next warning, so that use that swings around it warns once.
const MARGIN: f64 = 5.0;

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

    /// A warning for each GPU that went above the limit.
    pub(crate) fn warnings(&mut self, samples: &[GpuSample]) -> Vec<String> {
        samples
            .iter()
            .filter_map(|sample| self.warning(sample))
            .collect()
    }

    fn warning(&mut self, sample: &GpuSample) -> Option<String> {
        let (used, total) = sample.mem_used_mib.zip(sample.mem_total_mib)?;
        let percent = 100.0 * used as f64 / total as f64;
        if percent < self.limit_percent - MARGIN {
            self.above.remove(&sample.index);
        }
        let limit = self.limit_percent;
        (percent > limit && self.above.insert(sample.index)).then(|| {
            let index = sample.index.map_or_else(String::new, |index| index.to_string());
            format!("gpu {index}: {percent:.1} % of device memory is in use, {used} of {total} MiB; expected at most {limit} %")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(index: u32, mem_used_mib: Option<u64>) -> GpuSample {
        GpuSample {
            index: Some(index),
            mem_used_mib,
            mem_total_mib: Some(1000),
            ..GpuSample::at("2026-01-31T12:00:00Z".parse().unwrap())
        }
    }

    #[test]
    fn each_gpu_is_warned_of_once_until_its_memory_is_free_again() {
        let mut warnings = MemoryWarnings::new(90.0);
        let mut warned = |used| warnings.warnings(&[sample(0, Some(used))]).len();
        assert_eq!([900, 901, 999, 890, 950].map(&mut warned), [0, 1, 0, 0, 0]);
        assert_eq!([849, 901].map(&mut warned), [0, 1]);
        let both = [sample(0, Some(990)), sample(1, Some(990)), sample(2, None)];
        assert_eq!(
            warnings.warnings(&both),
            ["gpu 1: 99.0 % of device memory is in use, 990 of 1000 MiB; expected at most 90 %"]
        );
    }
}
