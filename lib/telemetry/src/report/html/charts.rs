//! The pictures of the page.

use plmkit_page::{Bars, Figure, Line, Lines, TimeUnit};

use crate::report::bins::{Bin, Bins};
use crate::report::{RunSummary, SamplesSummary};

/// Utilisation of the GPUs over the recording, with the runs shaded.
pub(super) fn gpus(samples: &SamplesSummary) -> Option<Figure> {
    let pictures = &samples.pictures;
    let known = pictures
        .utilization
        .iter()
        .filter(|(_, bins)| !bins.bins().is_empty());
    let end_s = known.clone().map(|(_, bins)| end(bins)).fold(0.0, f64::max);
    let unit = TimeUnit::for_seconds(end_s);
    let scale = unit.seconds();
    let lines = known.map(|(index, bins)| Line {
        name: index.map_or_else(|| "GPU ?".to_owned(), |index| format!("GPU {index}")),
        pieces: pieces(bins, scale, |bin| bin.sum / bin.count as f64 * 100.0),
    });
    let shaded = pictures
        .spans_s
        .iter()
        .map(|span| span.start / scale..span.end / scale);
    let mut shaded: Vec<_> = shaded.collect();
    shaded.retain(|span| span.start < end_s / scale && span.end > 0.0);
    Figure::lines(&Lines {
        caption: if shaded.is_empty() {
            "GPU utilization over the recording."
        } else {
            "GPU utilization over the recording; shaded: runs at work."
        },
        x_label: &format!("{} of recording", unit.name()),
        x: 0.0..end_s / scale,
        y_label: "busy, %",
        y_most: Some(105.0),
        lines: lines.collect(),
        shaded,
    })
}

/// Throughput over the run, waits, and how full the batches were.
pub(super) fn run(run: &RunSummary) -> Vec<Figure> {
    let Some(pictures) = &run.pictures else {
        return Vec::new();
    };
    let unit = TimeUnit::for_seconds(pictures.end_s);
    let points = pictures.tokens_per_s().into_iter();
    let throughput = Figure::lines(&Lines {
        caption: "Throughput over the run.",
        x_label: &format!("{} of run", unit.name()),
        x: 0.0..pictures.end_s / unit.seconds(),
        y_label: "tokens/s",
        y_most: None,
        lines: vec![one_line(
            "tokens/s",
            points
                .map(|(at_s, rate)| (at_s / unit.seconds(), rate))
                .collect(),
        )],
        shaded: Vec::new(),
    });
    let packing = &pictures.utilization;
    let least = Line {
        name: "least".to_owned(),
        pieces: pieces(packing, 1.0, |bin| bin.min * 100.0),
    };
    let mean = Line {
        name: "mean".to_owned(),
        pieces: pieces(packing, 1.0, |bin| bin.sum / bin.count as f64 * 100.0),
    };
    let packing = Figure::lines(&Lines {
        caption: "How full the batches were, last ones of files left out.",
        x_label: "batch",
        x: 0.0..end(packing),
        y_label: "tokens, % of budget",
        y_most: Some(105.0),
        lines: vec![mean, least],
        shaded: Vec::new(),
    });
    [throughput, waits(run), packing]
        .into_iter()
        .flatten()
        .collect()
}

fn waits(run: &RunSummary) -> Option<Figure> {
    let mut from_ms = 0.0;
    let bars = run.queue.waits.iter().map(|bin| {
        let name = match bin.below_ms {
            Some(below_ms) => format!("< {below_ms}"),
            None => format!("≥ {from_ms}"),
        };
        from_ms = bin.below_ms.unwrap_or(from_ms);
        (name, bin.batches as f64)
    });
    Figure::bars(&Bars {
        caption: "How long the device waited for a batch.",
        x_label: "wait, ms",
        y_label: "batches",
        bars: bars.collect(),
    })
}

fn one_line(name: &str, points: Vec<(f64, f64)>) -> Line {
    Line {
        name: name.to_owned(),
        pieces: vec![points],
    }
}

/// A line through the bins; where nothing fell into one, it is interrupted. Bins narrower than the time between two
/// samples are no gaps: a gap is longer than the longest of most.
fn pieces(bins: &Bins, scale: f64, value: impl Fn(&Bin) -> f64) -> Vec<Vec<(f64, f64)>> {
    let filled: Vec<usize> = (0..bins.bins().len())
        .filter(|&bin| bins.bins()[bin].count > 0)
        .collect();
    let mut steps: Vec<usize> = filled.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable();
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(1);
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut last = None;
    for &place in &filled {
        let bin = &bins.bins()[place];
        let point = (f64::midpoint(bin.from, bin.to) / scale, value(bin));
        let goes_on = last.is_some_and(|last| place - last <= 4 * usual);
        match pieces.last_mut() {
            Some(piece) if goes_on => piece.push(point),
            _ => pieces.push(vec![point]),
        }
        last = Some(place);
    }
    pieces
}

fn end(bins: &Bins) -> f64 {
    bins.bins().last().map_or(0.0, |bin| bin.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_interrupted_where_nothing_is_known_for_long() {
        let mut bins = Bins::new(1.0);
        for at in [0, 2, 4, 6, 30, 32] {
            bins.add(f64::from(at), 0.5);
        }
        let pieces = pieces(&bins, 1.0, |bin| bin.sum);
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
        assert_eq!(pieces[1][0], (30.5, 0.5));
    }
}
