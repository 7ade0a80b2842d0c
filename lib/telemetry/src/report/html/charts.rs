//! The charts of the page.

use plmkit_page::{Bars, Figure, Line, Lines, Strip, Strips, short, time_unit};

use crate::report::bins::{Bin, Bins};
use crate::report::pictures::GPU_LINES;
use crate::report::{RunSummary, SamplesSummary, gpu_name};

/// Points of a line: one for each two pixels of a chart.
const MAX_POINTS: usize = 140;

/// The next value of a line comes at most this many usual intervals after the last one. Later, there is a gap.
const MAX_INTERVALS: f64 = 2.5;

/// Draws what each GPU did over the recording, with the same axes for all. Runs are shaded.
pub(super) fn gpus(samples: &SamplesSummary) -> Vec<Figure> {
    let pictures = &samples.pictures;
    let all = || pictures.gpus.iter().flat_map(|(_, gpu)| &gpu.lines);
    let end_s = all().map(end).fold(0.0, f64::max);
    let (unit, unit_s) = time_unit(end_s);
    let highest = |position: usize| {
        let lines = pictures.gpus.iter().map(|(_, gpu)| &gpu.lines[position]);
        let bins = lines.flat_map(Bins::bins).filter(|bin| bin.count > 0);
        bins.map(|bin| bin.max).fold(0.0, f64::max) * 1.05
    };
    let mut y_max: Vec<f64> = (0..GPU_LINES.len()).map(highest).collect();
    // Utilisation is the first.
    y_max[0] = 105.0;
    let visible = pictures.spans_s.iter();
    let visible = visible.filter(|span| span.start < end_s && span.end > 0.0);
    let shaded: Vec<_> = visible
        .map(|span| span.start / unit_s..span.end / unit_s)
        .collect();
    let figures = pictures.gpus.iter().filter_map(|(index, gpu)| {
        let known = samples.gpus.iter().find(|known| known.index == *index);
        let name = gpu_name(*index, known.and_then(|known| known.name.as_deref()));
        let strips = gpu.lines.iter().zip(GPU_LINES).zip(&y_max);
        Figure::strips(&Strips {
            caption: &name,
            x_label: &format!("{unit} of recording"),
            x: 0.0..end_s / unit_s,
            strips: strips
                .map(|((bins, (label, _)), &y_max)| Strip {
                    y_max,
                    line: line(label, bins, (unit_s, 1.0)),
                })
                .collect(),
            shaded: shaded.clone(),
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
        lines: vec![Line {
            name: "tokens/s".to_owned(),
            pieces: vec![rates.collect()],
            band: Vec::new(),
        }],
        shaded: Vec::new(),
    });
    let packing = Figure::lines(&Lines {
        caption: "How full the batches were, last ones of files left out: mean, and from the least to the greatest.",
        x_label: "batch",
        x: 0.0..end(&pictures.utilization),
        y_label: "tokens, % of budget",
        y_max: Some(105.0),
        lines: vec![line("mean", &pictures.utilization, (1.0, 100.0))],
        shaded: Vec::new(),
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
fn line(name: &str, bins: &Bins, scales: (f64, f64)) -> Line {
    let (x_scale, y_scale) = scales;
    let bins = bins.coarse(MAX_POINTS);
    let pieces: Vec<Vec<&Bin>> = pieces(&bins);
    let x = |bin: &Bin| f64::midpoint(bin.from, bin.to) / x_scale;
    let mean = |bin: &Bin| bin.sum / bin.count as f64 * y_scale;
    let band = |bin: &Bin| (x(bin), bin.min * y_scale, bin.max * y_scale);
    let is_broad = |piece: &&Vec<&Bin>| piece.iter().any(|bin| bin.max > bin.min);
    Line {
        name: name.to_owned(),
        pieces: pieces
            .iter()
            .map(|piece| piece.iter().map(|bin| (x(bin), mean(bin))).collect())
            .collect(),
        band: pieces
            .iter()
            .filter(is_broad)
            .map(|piece| piece.iter().map(|bin| band(bin)).collect())
            .collect(),
    }
}

/// Returns the filled bins between gaps. Bins may be narrower than the time between two samples: the usual step between filled
/// bins is that time then.
fn pieces(bins: &[Bin]) -> Vec<Vec<&Bin>> {
    let filled: Vec<usize> = (0..bins.len())
        .filter(|&index| bins[index].count > 0)
        .collect();
    let mut steps: Vec<usize> = filled.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable();
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(1);
    // With many values in a bin, even one empty bin is a gap.
    let mut counts: Vec<u64> = filled.iter().map(|&index| bins[index].count).collect();
    counts.sort_unstable();
    let each = counts
        .get(counts.len() / 2)
        .map_or(1.0, |&count| count as f64);
    let is_joined = |before: &usize, next: &usize| {
        let step = next - before;
        step == 1 || step as f64 <= MAX_INTERVALS * usual as f64 / each
    };
    let pieces = filled.chunk_by(is_joined);
    pieces
        .map(|piece| piece.iter().map(|&index| &bins[index]).collect())
        .collect()
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
        let found = line("mean", &bins, (60.0, 100.0));
        let (first, second) = (5.0 / 60.0, 0.25);
        assert_eq!(found.pieces, [[(first, 50.0), (second, 50.0)]]);
        assert_eq!(found.band, [[(first, 25.0, 75.0), (second, 50.0, 50.0)]]);
        bins = Bins::new(1.0);
        bins.add(0.0, 0.5);
        assert!(line("mean", &bins, (1.0, 1.0)).band.is_empty());
    }
}
