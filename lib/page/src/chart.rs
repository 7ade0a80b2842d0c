//! Charts, drawn as SVG inside the page.

use std::fmt::Write;

use crate::{escape, short, time_unit};

/// The size on a page is fixed, so that all text has one size at any width of the page.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 332.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 150.0;

/// The most steps of an axis.
const STEPS: f64 = 5.0;

/// A chart with a caption, as HTML.
#[derive(Clone, Debug)]
pub struct Figure(pub(crate) String);

impl Figure {
    /// Draws bars over the time of a recording or a run: both ends of each in seconds, and its height. The y axis ends at `most`, or
    /// at the highest bar. Shaded times have names. Returns `None` if all bars are 0.
    pub fn over_time(
        caption: &str,
        of: &str,
        bars: &[(f64, f64, f64)],
        most: Option<f64>,
        shaded: &[([f64; 2], &str)],
    ) -> Option<Self> {
        let end_s = bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
        let highest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
        if end_s <= 0.0 || highest <= 0.0 {
            return None;
        }
        let (unit, unit_s) = time_unit(end_s);
        let y_step = step(most.unwrap_or(highest));
        let most = most.unwrap_or((highest / y_step).ceil() * y_step);
        let x = |at_s: f64| LEFT + (RIGHT - LEFT) * (at_s / end_s).min(1.0);
        let y = |height: f64| BOTTOM - (BOTTOM - TOP) * (height / most).min(1.0);
        let mut svg = format!("<svg role=\"img\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">");
        // Writing to a string does not fail.
        for ([from, to], name) in shaded {
            let (from, to, name) = (x(*from), x(*to), escape(name));
            let (width, height) = (to - from, BOTTOM - TOP);
            let _ = write!(
                svg,
                "<rect class=\"run\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{name}</title></rect>"
            );
        }
        for (tick, name) in ticks(y_step, most) {
            let (at, text) = (y(tick), y(tick) + 4.0);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/><text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 4.0
            );
        }
        let end = end_s / unit_s;
        for (tick, name) in ticks(step(end), end) {
            let (at, text) = (x(tick * unit_s), BOTTOM + 15.0);
            let _ = write!(
                svg,
                "<text x=\"{at:.1}\" y=\"{text:.1}\" text-anchor=\"middle\">{name}</text>"
            );
        }
        svg.push_str("<path class=\"bar\" d=\"");
        for &(from, to, height) in bars {
            let (left, right, top) = (x(from), x(to), y(height));
            let _ = write!(svg, "M{left:.1} {BOTTOM}V{top:.1}H{right:.1}V{BOTTOM}z");
        }
        let (middle, text) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 33.0);
        let (of, caption) = (escape(of), escape(caption));
        Some(Self(format!(
            "<figure>{svg}\"/><text x=\"{middle}\" y=\"{text:.1}\" text-anchor=\"middle\">{unit} of {of}</text></svg>\
             <figcaption>{caption}</figcaption></figure>"
        )))
    }
}

/// Returns the least round step of an axis of this length with few steps.
fn step(length: f64) -> f64 {
    let least = (length / STEPS).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|&step| step >= least)
        .unwrap_or(least)
}

fn ticks(step: f64, end: f64) -> Vec<(f64, String)> {
    let places = (0..=STEPS as u32).map(|place| f64::from(place) * step);
    let inside = places.filter(|&at| at <= end * (1.0 + 1e-9));
    inside.map(|at| (at, short(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(height: f64) -> Option<String> {
        let bars = [(0.0, 1.0, height), (3.0, 4.0, height / 2.0)];
        let figure = Figure::over_time("<caption>", "<x>", &bars, None, &[([0.0, 2.0], "<run>")]);
        figure.map(|figure| figure.0)
    }

    #[test]
    fn a_chart_escapes_its_text_and_names_round_numbers() {
        let html = bars(370.0).unwrap();
        for part in [
            ">seconds of &lt;x&gt;</text>",
            "&lt;caption&gt;",
            "<title>&lt;run&gt;</title>",
            ">400</text>",
            ">3</text>",
            // The whole and half of a bar of 370 under 400.
            "M50.0 150V20.5H120.5V150zM261.5 150V85.2H332.0V150z",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn a_chart_without_bars_is_left_out() {
        assert!(bars(0.0).is_none() && Figure::over_time("", "", &[], None, &[]).is_none());
        for height in [1e-300, 1e300] {
            assert!(!bars(height).unwrap().contains("NaN"), "{height}");
        }
    }
}
