//! Data of the charts: lines over time and over batches, in bins.

use std::collections::BTreeMap;
use std::ops::Range;

use plmkit_logs::GpuSample;
use plmkit_logs::event::BatchDone;

use super::bins::Bins;

/// Runs with charts, the first of a log. Charts take memory, and nobody looks at more.
pub(super) const MAX_RUNS: usize = 20;

/// The finest resolution of a line over time, in seconds.
const RESOLUTION_S: f64 = 0.05;

/// The finest resolution of a GPU's lines, in seconds.
const GPU_RESOLUTION_S: f64 = 0.5;

/// The label of a line, and its value.
type GpuLine = (&'static str, fn(&GpuSample) -> Option<f64>);

/// The lines of a GPU, from top to bottom.
#[rustfmt::skip]
pub(super) const GPU_LINES: [GpuLine; 5] = [
    ("busy, %", |sample| Some(sample.gpu_util?.into())),
    ("power, W", |sample| sample.power_w),
    ("temperature, °C", |sample| Some(sample.temperature_c?.into())),
    ("memory, GiB", |sample| Some(sample.mem_used_mib? as f64 / 1024.0)),
    ("SM clock, MHz", |sample| Some(sample.sm_clock_mhz?.into())),
];

/// Chart data of a GPU over the seconds of all recordings of its machine in a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GpuPictures {
    /// The values of [`GPU_LINES`].
    pub(super) lines: [Bins; GPU_LINES.len()],
    /// The extent of the samples during each run that used the GPU, by the position of the run.
    pub(super) spans_s: BTreeMap<usize, Range<f64>>,
}

impl GpuPictures {
    pub(super) fn new() -> Self {
        Self {
            lines: GPU_LINES.map(|_| Bins::new(GPU_RESOLUTION_S)),
            spans_s: BTreeMap::new(),
        }
    }

    /// Adds a sample at `at_s` on the time axis, during some runs on the GPU.
    pub(super) fn add(&mut self, at_s: f64, sample: &GpuSample, runs: impl Iterator<Item = usize>) {
        for run in runs {
            self.spans_s.entry(run).or_insert(at_s..at_s).end = at_s;
        }
        for (bins, (_, value)) in self.lines.iter_mut().zip(GPU_LINES) {
            if let Some(value) = value(sample) {
                bins.add(at_s, value);
            }
        }
    }
}

/// Chart data of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunPictures {
    /// Tokens over the seconds of the run.
    pub(super) tokens: Bins,
    /// Token utilisation over the batch numbers, without last batches of files.
    pub(super) utilization: Bins,
    /// The time of the last batch, in seconds of the run.
    pub(super) end_s: f64,
}

impl Default for RunPictures {
    fn default() -> Self {
        Self {
            tokens: Bins::new(RESOLUTION_S),
            utilization: Bins::new(1.0),
            end_s: 0.0,
        }
    }
}

impl RunPictures {
    /// Adds a batch of an attempt that began `before_s` into the run.
    pub(super) fn add(&mut self, batch: &BatchDone, before_s: f64) {
        if let Some(elapsed_s) = batch.elapsed_s {
            let at_s = before_s + elapsed_s;
            // The tokens of a batch were computed since the previous batch.
            self.tokens.spread(self.end_s, at_s, batch.tokens as f64);
            self.end_s = self.end_s.max(at_s);
        }
        if let Some(utilization) = batch.packing().filter(|_| !batch.tail) {
            self.utilization.add(batch.batch as f64, utilization);
        }
    }

    /// Returns at most `most` rates in tokens a second, over the seconds of the run.
    pub(super) fn tokens_per_s(&self, most: usize) -> Vec<(f64, f64)> {
        let bins = self.tokens.coarse(most).into_iter();
        bins.filter_map(|bin| {
            // The run ends within the last bin. If it fills hardly any of the bin, the rate would be noise.
            let to = bin.to.min(self.end_s);
            let enough = to - bin.from > (bin.to - bin.from) / 100.0;
            enough.then(|| (f64::midpoint(bin.from, to), bin.sum / (to - bin.from)))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_as_high_as_the_throughput_for_any_bins() {
        for batches in [10_u32, 1000, 100_000] {
            let mut pictures = RunPictures::default();
            for number in 1..=batches {
                let batch = BatchDone {
                    tokens: 300,
                    elapsed_s: Some(f64::from(number) * 0.3),
                    ..BatchDone::default()
                };
                pictures.add(&batch, 0.0);
            }
            for (at_s, rate) in pictures.tokens_per_s(100) {
                assert!((rate - 1000.0).abs() < 1.0, "{batches}: {rate} at {at_s}");
            }
        }
    }
}
