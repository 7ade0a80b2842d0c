//! The charts of the page.

use plmkit_page::{Bars, Figure, Line, Lines, time_unit};

use crate::report::bins::{Bin, Bins};
use crate::report::{RunSummary, SamplesSummary};

/// Draws the utilisation of the GPUs over the recording. Runs are shaded.
pub(super) fn gpus(samples: &SamplesSummary) -> Option<Figure> {
    let pictures = &samples.pictures;
    let known = pictures.utilization.iter();
    let known = known.filter(|(_, bins)| !bins.bins().is_empty());
    let end_s = known.clone().map(|(_, bins)| end(bins)).fold(0.0, f64::max);
    let (unit, unit_s) = time_unit(end_s);
    let lines = known.map(|(index, bins)| Line {
        name: index.map_or_else(|| "GPU ?".to_owned(), |index| format!("GPU {index}")),
        pieces: pieces(bins, unit_s, mean_percent),
    });
    let spans = pictures.spans_s.iter();
    let visible = spans.filter(|span| span.start < end_s && span.end > 0.0);
    let shaded: Vec<_> = visible
        .map(|span| span.start / unit_s..span.end / unit_s)
        .collect();
    Figure::lines(&Lines {
        caption: if shaded.is_empty() {
            "GPU utilization over the recording."
        } else {
            "GPU utilization over the recording; shaded: runs at work."
        },
        x_label: &format!("{unit} of recording"),
        x: 0.0..end_s / unit_s,
        y_label: "busy, %",
        y_max: Some(105.0),
        lines: lines.collect(),
        shaded,
    })
}

/// Draws throughput over the run, waits, and token utilisation of the batches.
pub(super) fn run(run: &RunSummary) -> Vec<Figure> {
    let Some(pictures) = &run.pictures else {
        return Vec::new();
    };
    let (unit, unit_s) = time_unit(pictures.end_s);
    let rates = pictures.tokens_per_s().into_iter();
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
        }],
        shaded: Vec::new(),
    });
    let packing = &pictures.utilization;
    let line = |name: &str, percent: fn(&Bin) -> f64| Line {
        name: name.to_owned(),
        pieces: pieces(packing, 1.0, percent),
    };
    let packing = Figure::lines(&Lines {
        caption: "How full the batches were, last ones of files left out.",
        x_label: "batch",
        x: 0.0..end(packing),
        y_label: "tokens, % of budget",
        y_max: Some(105.0),
        lines: vec![
            line("mean", mean_percent),
            line("least", |bin| bin.min * 100.0),
        ],
        shaded: Vec::new(),
    });
    let figures = [throughput, waits(run), packing].into_iter();
    figures.flatten().collect()
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

fn mean_percent(bin: &Bin) -> f64 {
    bin.sum / bin.count as f64 * 100.0
}

/// Returns a line through the bins, interrupted at gaps. Bins may be narrower than the time between two samples, so a gap
/// is longer than four usual steps.
fn pieces(bins: &Bins, scale: f64, value: impl Fn(&Bin) -> f64) -> Vec<Vec<(f64, f64)>> {
    let bins = bins.bins();
    let filled: Vec<usize> = (0..bins.len())
        .filter(|&index| bins[index].count > 0)
        .collect();
    let mut steps: Vec<usize> = filled.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable();
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(1);
    let pieces = filled.chunk_by(|before, next| next - before <= 4 * usual);
    let point = |&index: &usize| {
        let bin = &bins[index];
        (f64::midpoint(bin.from, bin.to) / scale, value(bin))
    };
    pieces
        .map(|piece| piece.iter().map(point).collect())
        .collect()
}

fn end(bins: &Bins) -> f64 {
    bins.bins().last().map_or(0.0, |bin| bin.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_interrupted_at_a_long_gap() {
        let mut bins = Bins::new(1.0);
        for at in [0, 2, 4, 6, 30, 32] {
            bins.add(f64::from(at), 0.5);
        }
        let pieces = pieces(&bins, 1.0, |bin| bin.sum);
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
        assert_eq!(pieces[1][0], (30.5, 0.5));
    }
}
