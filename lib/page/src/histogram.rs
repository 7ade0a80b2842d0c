//! Histograms of lengths, drawn as SVG inside the page.

use std::fmt::Write;

use crate::escape::escape;
use crate::page::Page;
use crate::scale::short;

/// The size of the drawing, and of the part with the bars.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 206.0;
const TOP: f64 = 18.0;
const BASE: f64 = 186.0;

impl Page {
    /// Adds a histogram over a logarithmic axis of what `unit` names: the bounds of each bin, and how many are in it. A line marks a
    /// cut, which has a name. Adds nothing if all bins are empty.
    pub fn histogram(
        &mut self,
        caption: &str,
        unit: &str,
        bins: &[([u32; 2], u64)],
        cut: Option<(f64, &str)>,
    ) -> &mut Self {
        let most = bins.iter().map(|bin| bin.1).max().unwrap_or(0);
        let [Some(first), Some(last)] =
            [bins.first(), bins.last()].map(|bin| bin.filter(|_| most > 0))
        else {
            return self;
        };
        let (first, last) = (f64::from(first.0[0]), f64::from(last.0[1]));
        let x = |at: f64| WIDTH * (at / first).ln() / (last / first).ln();
        let (caption, unit, highest) = (escape(caption), escape(unit), short(most as f64));
        // Writing to a string does not fail.
        let _ = write!(
            self.body,
            "<figure><figcaption>{caption}: at most {highest}</figcaption>\
             <svg class=\"whole\" role=\"img\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">"
        );
        for &([from, to], count) in bins {
            let (left, right) = (x(from.into()), x(to.into()));
            let (width, height) = (
                right - left - 1.0,
                (BASE - TOP) * count as f64 / most as f64,
            );
            let top = BASE - height;
            let _ = write!(
                self.body,
                "<rect class=\"bar\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{from} to {} {unit}: {count}</title></rect>",
                to - 1
            );
        }
        let powers = (0..10).map(|power| 10_f64.powi(power));
        let ticks = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * power));
        for tick in ticks.filter(|tick| (first..=last).contains(tick)) {
            let (at, tick) = (x(tick), short(tick));
            let anchor = anchor(at);
            let _ = write!(
                self.body,
                "<text x=\"{at:.1}\" y=\"202\" text-anchor=\"{anchor}\">{tick}</text>"
            );
        }
        if let Some((at, name)) = cut.filter(|(at, _)| (first..=last).contains(at)) {
            let (at, name) = (x(at), escape(name));
            let (side, anchor) = if at > WIDTH / 2.0 {
                (-6.0, "end")
            } else {
                (6.0, "start")
            };
            let beside = at + side;
            let _ = write!(
                self.body,
                "<path class=\"cut\" d=\"M{at:.1} 0V{BASE}\"/><text class=\"cut\" x=\"{beside:.1}\" y=\"14\" text-anchor=\"{anchor}\">{name}</text>"
            );
        }
        self.body.push_str("</svg></figure>\n");
        self
    }
}

/// Keeps a label at an edge inside.
fn anchor(at: f64) -> &'static str {
    match at {
        ..20.0 => "start",
        980.0.. => "end",
        _ => "middle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_bars_labels_and_a_cut() {
        let mut page = Page::new("");
        let bins = [([10, 100], 1), ([100, 1000], 4)];
        page.histogram("<lengths>", "residues", &bins, Some((500.0, "<cut>")));
        for part in [
            "&lt;lengths&gt;: at most 4</figcaption>",
            "x=\"0.0\" y=\"144.0\" width=\"499.0\" height=\"42.0\"><title>10 to 99 residues: 1</title>",
            "<text x=\"500.0\" y=\"202\" text-anchor=\"middle\">100</text>",
            "<text x=\"1000.0\" y=\"202\" text-anchor=\"end\">1k</text>",
            "text-anchor=\"end\">&lt;cut&gt;</text>",
        ] {
            assert!(page.body.contains(part), "{part}: {}", page.body);
        }
        let mut page = Page::new("");
        page.histogram("", "", &[], None)
            .histogram("", "", &[([1, 2], 0)], None);
        assert!(page.body.is_empty());
    }
}
