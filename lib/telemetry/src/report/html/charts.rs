//! The charts of the page.

use std::array;

use plmkit_page::{Bars, Figure, Line, Lines, Strip, Strips, short, time_unit};

use crate::report::bins::{Bin, Bins};
use crate::report::pictures::GPU_LINES;
use crate::report::{RunSummary, SamplesSummary};

/// Points of a line: one for each two pixels of a chart.
const MAX_POINTS: usize = 140;

/// The next value of a line comes at most this many usual intervals after the last one. Later, there is a gap.
const MAX_INTERVALS: f64 = 2.5;

/// Draws what each GPU did over the recording, with the same axes for all. Its runs are shaded.
pub(super) fn gpus(samples: &SamplesSummary, all_runs: &[RunSummary]) -> Vec<Figure> {
    let all = samples.pictures.iter();
    let lines = all.clone().flat_map(|gpu| &gpu.lines);
    let end_s = lines.map(end).fold(0.0, f64::max);
    let (unit, unit_s) = time_unit(end_s);
    let highest = |position: usize| {
        let bins = all.clone().flat_map(|gpu| gpu.lines[position].bins());
        let filled = bins.filter(|bin| bin.count > 0);
        filled.map(|bin| bin.max).fold(0.0, f64::max) * 1.05
    };
    // Utilisation is the first.
    let y_max: [f64; GPU_LINES.len()] = array::from_fn(|position| match position {
        0 => 105.0,
        _ => highest(position),
    });
    let gpus = samples.gpus.iter().zip(&samples.pictures);
    let figures = gpus.filter_map(|(gpu, pictures)| {
        let runs = pictures.spans_s.iter();
        let runs = runs.filter(|(_, span)| span.start < end_s);
        let shaded = runs.map(|(run, span)| {
            let name = all_runs.get(*run).map_or("", |run| run.run.as_str());
            (span.start / unit_s..span.end / unit_s, name.to_owned())
        });
        let strips = pictures.lines.iter().zip(GPU_LINES).zip(y_max);
        let strips = strips.map(|((bins, (label, _)), y_max)| Strip {
            y_max,
            label,
            line: line(bins, (unit_s, 1.0)),
        });
        Figure::strips(&Strips {
            caption: &gpu.label(),
            x_label: &format!("{unit} of recording"),
            x: 0.0..end_s / unit_s,
            strips: strips.collect(),
            shaded: shaded.collect(),
        })
    });
    figures.collect()
}

/// Draws throughput over the run, waits, and token utilisation of the batches.
pub(super) fn run(run: &RunSummary) -> Vec<Figure> {
    let Some(pictures) = &run.pictures else {
        return Vec::new();
    };
    let (unit, unit_s) = time_unit(pictures.end_s);
    let rates = pictures.tokens_per_s(MAX_POINTS).into_iter();
    let rates = rates.map(|(at_s, rate)| (at_s / unit_s, rate));
    let throughput = Figure::lines(&Lines {
        caption: "Throughput over the run.",
        x_label: &format!("{unit} of run"),
        x: 0.0..pictures.end_s / unit_s,
        y_label: "tokens/s",
        y_max: None,
        line: Line {
            pieces: vec![rates.collect()],
            band: Vec::new(),
        },
    });
    let packing = Figure::lines(&Lines {
        caption: "How full batches were: mean and range, without the last of each file.",
        x_label: "batch",
        x: 0.0..end(&pictures.utilization),
        y_label: "tokens, % of budget",
        y_max: Some(105.0),
        line: line(&pictures.utilization, (1.0, 100.0)),
    });
    let figures = [throughput, waits(run), packing].into_iter();
    figures.flatten().collect()
}

fn waits(run: &RunSummary) -> Option<Figure> {
    let bars = run.queue.waits.iter().map(|bin| {
        let name = bin.below_ms.map_or_else(|| "∞".to_owned(), short);
        (name, bin.batches as f64)
    });
    Figure::bars(&Bars {
        caption: "How long the device waited for a batch.",
        x_label: "wait below, ms",
        y_label: "batches",
        bars: bars.collect(),
    })
}

/// Returns a line through the means of bins, and a band from the least to the greatest values. `scales` divide positions and
/// multiply values.
fn line(bins: &Bins, scales: (f64, f64)) -> Line {
    let (x_scale, y_scale) = scales;
    let bins = bins.coarse(MAX_POINTS);
    let pieces = pieces(&bins);
    let x = |bin: &Bin| f64::midpoint(bin.from, bin.to) / x_scale;
    let point = |bin: &&Bin| (x(bin), bin.sum / bin.count as f64 * y_scale);
    let band = |bin: &&Bin| (x(bin), bin.min * y_scale, bin.max * y_scale);
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

fn end(bins: &Bins) -> f64 {
    bins.bins().last().map_or(0.0, |bin| bin.to)
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
        let found = line(&bins, (60.0, 100.0));
        let (first, second) = (5.0 / 60.0, 0.25);
        assert_eq!(found.pieces, [[(first, 50.0), (second, 50.0)]]);
        assert_eq!(found.band, [[(first, 25.0, 75.0), (second, 50.0, 50.0)]]);
        bins = Bins::new(1.0);
        bins.add(0.0, 0.5);
        assert!(line(&bins, (1.0, 1.0)).band.is_empty());
    }
}
