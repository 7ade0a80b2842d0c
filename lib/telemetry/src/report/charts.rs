//! The charts of the page, and their data: lines over time and over batches, in bins.

use std::array;
use std::collections::BTreeMap;
use std::ops::Range;

use plmkit_logs::event::BatchDone;
use plmkit_logs::{GpuSample, Metric};
use plmkit_page::{Bars, Figure, Line, Strip, Strips, short, time_unit};

use super::bins::{Bin, Bins};
use super::{RunSummary, SamplesSummary};

/// Runs with charts, the first of a log. Charts take memory, and nobody looks at more.
pub(super) const MAX_RUNS: usize = 20;

/// The finest resolution of a run's and of a GPU's lines over time, in seconds.
const RESOLUTION_S: f64 = 0.05;
const GPU_RESOLUTION_S: f64 = 0.5;

/// Points of a line: one for each two pixels of a chart.
const MAX_POINTS: usize = 140;

/// The next value of a line comes at most this many usual intervals after the last one. Later, there is a gap.
const MAX_INTERVALS: f64 = 2.5;

/// The lines of a GPU, from top to bottom. Utilization is the first.
const GPU_LINES: [&str; 5] = [
    "gpu_util",
    "power_w",
    "temperature_c",
    "mem_used_mib",
    "sm_clock_mhz",
];

/// The end of the axis of a percentage.
const PERCENT_MAX: f64 = 105.0;

/// Chart data of a GPU, the values of [`GPU_LINES`], over the seconds of all recordings of its machine in a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GpuPictures {
    lines: [Bins; GPU_LINES.len()],
    /// The extent of the samples during each run that used the GPU, by the position of the run.
    spans_s: BTreeMap<usize, Range<f64>>,
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
        for (bins, column) in self.lines.iter_mut().zip(GPU_LINES) {
            if let Some(value) = Metric::of(column).and_then(|metric| (metric.value)(sample)) {
                bins.add(at_s, value);
            }
        }
    }
}

/// Chart data of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunPictures {
    /// Tokens over the seconds of the run.
    tokens: Bins,
    /// How full batches were over their numbers, without last batches of files.
    fill: Bins,
    /// The time of the last batch, in seconds of the run.
    end_s: f64,
}

impl Default for RunPictures {
    fn default() -> Self {
        Self {
            tokens: Bins::new(RESOLUTION_S),
            fill: Bins::new(1.0),
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
        if let Some(fill) = batch.fill().filter(|_| !batch.tail) {
            self.fill.add(batch.batch as f64, fill * 100.0);
        }
    }

    /// Returns the rate in tokens a second, over the seconds of the run.
    fn tokens_per_s(&self) -> Line {
        let bins = self.tokens.coarse(MAX_POINTS).into_iter();
        let points = bins.filter_map(|bin| {
            // The run ends within the last bin. If it fills hardly any of the bin, the rate would be noise.
            let to = bin.to.min(self.end_s);
            let enough = to - bin.from > (bin.to - bin.from) / 100.0;
            enough.then(|| (f64::midpoint(bin.from, to), bin.sum / (to - bin.from)))
        });
        Line {
            pieces: vec![points.collect()],
            band: Vec::new(),
        }
    }
}

/// Draws what each GPU did over the recording, with the same axes for all. Its runs are shaded.
pub(super) fn gpus(samples: &SamplesSummary, runs: &[RunSummary]) -> Vec<Figure> {
    let all = samples.pictures.iter();
    let lines = all.clone().flat_map(|gpu| &gpu.lines);
    let end_s = lines.map(Bins::end).fold(0.0, f64::max);
    let highest = |position: usize| {
        let bins = all.clone().flat_map(|gpu| gpu.lines[position].bins());
        let filled = bins.filter(|bin| bin.count > 0);
        filled.map(|bin| bin.max).fold(0.0, f64::max) * 1.05
    };
    let y_max: [f64; GPU_LINES.len()] = array::from_fn(|position| match position {
        0 => PERCENT_MAX,
        _ => highest(position),
    });
    let gpus = samples.gpus.iter().zip(&samples.pictures);
    let figures = gpus.filter_map(|(gpu, pictures)| {
        let strips = pictures.lines.iter().zip(GPU_LINES).zip(y_max);
        let strips = strips.filter_map(|((bins, column), y_max)| {
            let metric = Metric::of(column)?;
            Some(Strip {
                y_max: Some(y_max),
                label: format!("{}, {}", metric.name, metric.unit.symbol()),
                line: line(bins),
            })
        });
        let spans = pictures.spans_s.iter();
        let shaded = spans
            .filter(|(_, span)| span.start < end_s)
            .map(|(&run, span)| {
                let name = runs.get(run).map_or("", |run| run.run.as_str());
                (span.clone(), name.to_owned())
            });
        let shaded = shaded.collect();
        over_time(&gpu.label(), "recording", end_s, strips.collect(), shaded)
    });
    figures.collect()
}

/// Draws throughput over the run, waits, and how full the batches were.
pub(super) fn run(run: &RunSummary) -> Vec<Figure> {
    let Some(pictures) = &run.pictures else {
        return Vec::new();
    };
    let rate = Strip {
        y_max: None,
        label: "tokens/s".to_owned(),
        line: pictures.tokens_per_s(),
    };
    let caption = "Throughput over the run.";
    let throughput = over_time(caption, "run", pictures.end_s, vec![rate], Vec::new());
    let fill = Figure::strips(&Strips {
        caption: "How full batches were: mean and range, without the last of each file.",
        x_label: "batch",
        x: 0.0..pictures.fill.end(),
        strips: vec![Strip {
            y_max: Some(PERCENT_MAX),
            label: "tokens, % of budget".to_owned(),
            line: line(&pictures.fill),
        }],
        shaded: Vec::new(),
    });
    let waits = run.queue.waits.iter().map(|bin| {
        let name = bin.below_ms.map_or_else(|| "∞".to_owned(), short);
        (name, bin.batches as f64)
    });
    let waits = Figure::bars(&Bars {
        caption: "How long the device waited for a batch.",
        x_label: "wait below, ms",
        y_label: "batches",
        bars: waits.collect(),
    });
    [throughput, waits, fill].into_iter().flatten().collect()
}

/// Draws strips over a time in seconds, with an axis in a unit of few digits.
fn over_time(
    caption: &str,
    of: &str,
    end_s: f64,
    mut strips: Vec<Strip>,
    mut shaded: Vec<(Range<f64>, String)>,
) -> Option<Figure> {
    let (unit, unit_s) = time_unit(end_s);
    for strip in &mut strips {
        let points = strip.line.pieces.iter_mut().flatten();
        points.for_each(|point| point.0 /= unit_s);
        let band = strip.line.band.iter_mut().flatten();
        band.for_each(|point| point.0 /= unit_s);
    }
    for (span, _) in &mut shaded {
        *span = span.start / unit_s..span.end / unit_s;
    }
    Figure::strips(&Strips {
        caption,
        x_label: &format!("{unit} of {of}"),
        x: 0.0..end_s / unit_s,
        strips,
        shaded,
    })
}

/// Returns a line through the means of bins, and a band from the least to the greatest values.
fn line(bins: &Bins) -> Line {
    let bins = bins.coarse(MAX_POINTS);
    let pieces = pieces(&bins);
    let x = |bin: &Bin| f64::midpoint(bin.from, bin.to);
    let point = |bin: &&Bin| (x(bin), bin.sum / bin.count as f64);
    let band = |bin: &&Bin| (x(bin), bin.min, bin.max);
    let is_broad = |piece: &&Vec<&Bin>| piece.iter().any(|bin| bin.max > bin.min);
    let bands = pieces.iter().filter(is_broad);
    let bands = bands.map(|piece| piece.iter().map(band).collect());
    let lines = pieces.iter().map(|piece| piece.iter().map(point).collect());
    Line {
        pieces: lines.collect(),
        band: bands.collect(),
    }
}

/// Returns the filled bins between gaps. Bins may be narrower than the time between two samples: the usual step between filled
/// bins is that time then.
fn pieces(bins: &[Bin]) -> Vec<Vec<&Bin>> {
    let filled = bins.iter().enumerate().filter(|(_, bin)| bin.count > 0);
    let filled: Vec<(usize, &Bin)> = filled.collect();
    let steps = filled.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let usual = middle(steps).unwrap_or(1);
    // With many values in a bin, even one empty bin is a gap.
    let each = middle(filled.iter().map(|(_, bin)| bin.count)).unwrap_or(1);
    let is_joined = |before: &(usize, &Bin), next: &(usize, &Bin)| {
        let step = next.0 - before.0;
        step == 1 || step as f64 <= MAX_INTERVALS * usual as f64 / each as f64
    };
    let pieces = filled.chunk_by(is_joined);
    let pieces = pieces.map(|piece| piece.iter().map(|(_, bin)| *bin).collect());
    pieces.collect()
}

/// Returns the value in the middle, the greater of two.
fn middle<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(readings: impl IntoIterator<Item = f64>, width: f64) -> Vec<usize> {
        let mut bins = Bins::new(width);
        readings.into_iter().for_each(|at| bins.add(at, 0.5));
        pieces(bins.bins()).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_line_is_interrupted_where_more_than_two_and_a_half_intervals_have_no_value() {
        // Every two seconds, in bins of one: one is missed at 8, three from 30 to 34.
        let seconds = (0..30).filter(|second| ![4, 15, 16, 17].contains(second));
        assert_eq!(lengths(seconds.map(|n| f64::from(n) * 2.0), 1.0), [14, 12]);
        // Every second, in bins of ten: one bin is empty.
        let seconds = (0..100).filter(|second| !(50..60).contains(second));
        assert_eq!(lengths(seconds.map(f64::from), 10.0), [5, 4]);
        assert_eq!(lengths([3.0], 1.0), [1]);
        assert!(lengths([], 1.0).is_empty());
    }

    #[test]
    fn the_band_is_from_the_least_to_the_greatest_value_and_only_where_there_is_one() {
        let mut bins = Bins::new(10.0);
        for (at, value) in [(1.0, 0.25), (2.0, 0.75), (11.0, 0.5)] {
            bins.add(at, value);
        }
        let found = line(&bins);
        let (first, second) = (5.0, 15.0);
        assert_eq!(found.pieces, [[(first, 0.5), (second, 0.5)]]);
        assert_eq!(found.band, [[(first, 0.25, 0.75), (second, 0.5, 0.5)]]);
        bins = Bins::new(1.0);
        bins.add(0.0, 0.5);
        assert!(line(&bins).band.is_empty());
    }
}
