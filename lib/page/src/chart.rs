//! Charts, drawn as SVG inside the page.

use std::fmt::Write;

use crate::{escape, short};

/// The size on a page is fixed, so that all text has one size at any width of the page.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 332.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 150.0;

/// The most steps of an axis.
const STEPS: f64 = 5.0;

/// A chart with a caption.
#[derive(Clone, Debug)]
pub struct Figure {
    svg: String,
    caption: String,
}

/// Bars over an axis that starts at 0.
#[derive(Clone, Debug, Default)]
pub struct Bars<'a> {
    /// The caption.
    pub caption: &'a str,
    /// The label of the x axis.
    pub x_label: &'a str,
    /// The end of the y axis; `None` for the highest bar.
    pub most: Option<f64>,
    /// A height at which a line is drawn.
    pub limit: Option<f64>,
    /// The bars: both ends and the height of each.
    pub bars: Vec<(f64, f64, f64)>,
    /// Named positions of the x axis; numbers if there are none.
    pub ticks: Vec<(f64, String)>,
    /// Shaded ranges of the x axis, and their names.
    pub shaded: Vec<([f64; 2], String)>,
}

impl Figure {
    /// Draws bars. Returns `None` if all are 0.
    pub fn bars(bars: &Bars) -> Option<Self> {
        let end = bars.bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
        let highest = bars.bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
        if end <= 0.0 || highest <= 0.0 {
            return None;
        }
        let highest = bars.limit.unwrap_or(0.0).max(highest);
        let y_step = step(bars.most.unwrap_or(highest));
        let most = bars.most.unwrap_or((highest / y_step).ceil() * y_step);
        let x = |at: f64| LEFT + (RIGHT - LEFT) * (at / end).min(1.0);
        let y = |height: f64| BOTTOM - (BOTTOM - TOP) * (height / most).min(1.0);
        let mut svg = format!("<svg role=\"img\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">");
        // Writing to a string does not fail.
        for ([from, to], name) in &bars.shaded {
            let (from, to, name) = (x(*from), x(*to), escape(name));
            let width = to - from;
            let _ = write!(
                svg,
                "<rect class=\"run\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{name}</title></rect>",
                BOTTOM - TOP
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
        let named = match &bars.ticks[..] {
            [] => ticks(step(end), end),
            named => named.to_vec(),
        };
        // As many names as have room, with 7 pixels for a character.
        let mut free = 0.0;
        for (tick, name) in named {
            let (at, half) = (x(tick), 3.5 * name.chars().count() as f64);
            if at - half < free {
                continue;
            }
            free = at + half;
            let name = escape(&name);
            let _ = write!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                BOTTOM + 15.0
            );
        }
        svg.push_str("<path class=\"bar\" d=\"");
        for &(from, to, height) in &bars.bars {
            let (left, right, top) = (x(from), x(to), y(height));
            let _ = write!(svg, "M{left:.1} {BOTTOM}V{top:.1}H{right:.1}V{BOTTOM}z");
        }
        svg.push_str("\"/>");
        if let Some(at) = bars.limit.map(y) {
            let _ = write!(svg, "<path class=\"limit\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
        }
        let (middle, x_label) = (f64::midpoint(LEFT, RIGHT), escape(bars.x_label));
        let _ = write!(
            svg,
            "<text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">{x_label}</text></svg>",
            BOTTOM + 33.0
        );
        Some(Self {
            svg,
            caption: bars.caption.to_owned(),
        })
    }

    pub(crate) fn html(&self) -> String {
        let (svg, caption) = (&self.svg, escape(&self.caption));
        format!("<figure>{svg}<figcaption>{caption}</figcaption></figure>")
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
        let figure = Figure::bars(&Bars {
            caption: "<caption>",
            x_label: "<x>",
            bars: vec![(0.0, 1.0, height), (3.0, 4.0, height / 2.0)],
            shaded: vec![([0.0, 2.0], "<run>".to_owned())],
            ..Bars::default()
        });
        figure.map(|figure| figure.html())
    }

    #[test]
    fn a_chart_escapes_its_text_and_names_round_numbers() {
        let html = bars(370.0).unwrap();
        for part in [
            "&lt;x&gt;",
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
        assert!(bars(0.0).is_none() && Figure::bars(&Bars::default()).is_none());
        for height in [1e-300, 1e300] {
            assert!(!bars(height).unwrap().contains("NaN"), "{height}");
        }
    }
}
