//! Charts, drawn as SVG inside the page.

use std::fmt::Write;

use crate::escape::escape;
use crate::page::Page;
use crate::scale::{duration, short};

/// The size of the drawing, which is stretched to the width of the page.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;

impl Page {
    /// Adds a chart of bars over time: both ends of each in seconds, and its height. The chart is as high as `most`, or as the highest
    /// bar; the caption tells how much that is, and how long the time. Shaded times have names. Adds nothing if all bars are 0.
    pub fn chart(
        &mut self,
        caption: &str,
        bars: &[(f64, f64, f64)],
        most: Option<f64>,
        shaded: &[([f64; 2], &str)],
    ) -> &mut Self {
        let end_s = bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
        let highest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
        if end_s <= 0.0 || highest <= 0.0 {
            return self;
        }
        let most = most.unwrap_or(highest);
        let x = |at_s: f64| WIDTH * (at_s / end_s).min(1.0);
        let y = |height: f64| HEIGHT * (1.0 - (height / most).min(1.0));
        let (caption, height, time) = (escape(caption), short(most), duration(end_s));
        // Writing to a string does not fail.
        let _ = write!(
            self.body,
            "<figure><figcaption>{caption}: at most {height}, over {time}</figcaption>\
             <svg role=\"img\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\">"
        );
        for ([from, to], name) in shaded {
            let (from, to, name) = (x(*from), x(*to), escape(name));
            let width = to - from;
            let _ = write!(
                self.body,
                "<rect class=\"run\" x=\"{from:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\"><title>{name}</title></rect>"
            );
        }
        self.body.push_str("<path class=\"bar\" d=\"");
        for &(from, to, height) in bars {
            let (left, right, top) = (x(from), x(to), y(height));
            let _ = write!(
                self.body,
                "M{left:.1} {HEIGHT}V{top:.1}H{right:.1}V{HEIGHT}z"
            );
        }
        self.body.push_str("\"/></svg></figure>\n");
        self
    }
}

/// The height of a horizontal bar with its margin, in pixels.
const ROW: usize = 20;

impl Page {
    /// Adds horizontal bars: the name of each, and the seconds of its parts, one after the other. Adds nothing if all are 0.
    pub fn stacked(
        &mut self,
        caption: &str,
        parts: &[&str],
        bars: &[(&str, Vec<f64>)],
    ) -> &mut Self {
        let wholes: Vec<f64> = bars.iter().map(|(_, bar)| bar.iter().sum()).collect();
        let longest = wholes.iter().copied().fold(0.0, f64::max);
        if longest <= 0.0 {
            return self;
        }
        let (html, caption) = (&mut self.body, escape(caption));
        let _ = write!(html, "<figure><figcaption>{caption}</figcaption><p>");
        let parts: Vec<String> = parts.iter().map(|part| escape(part)).collect();
        for (place, part) in parts.iter().enumerate() {
            let seconds = bars.iter().map(|(_, bar)| bar[place]).sum::<f64>();
            let percent = 100.0 * seconds / wholes.iter().sum::<f64>();
            if seconds > 0.0 {
                let _ = write!(
                    html,
                    "<span class=\"part{place}\">■</span> {part} {percent:.1} % "
                );
            }
        }
        let height = ROW * bars.len();
        let _ = write!(html, "</p><svg role=\"img\" style=\"height:{height}px\">");
        for (row, ((name, bar), whole)) in bars.iter().zip(wholes).enumerate() {
            let (name, all, top, mut left) = (escape(name), duration(whole), ROW * row, 35.0);
            let _ = write!(
                html,
                "<svg y=\"{top}\" width=\"100%\" height=\"{ROW}\"><svg width=\"26%\"><title>{name}</title>\
                 <text x=\"4\" y=\"14\">{name}</text></svg><text x=\"34%\" y=\"14\" text-anchor=\"end\">{all}</text>"
            );
            for (place, (part, seconds)) in parts.iter().zip(bar).enumerate() {
                let seconds = seconds.max(0.0) + 0.0;
                let (width, time) = (65.0 * seconds / longest, duration(seconds));
                let _ = write!(
                    html,
                    "<rect class=\"part{place}\" x=\"{left:.2}%\" y=\"3\" width=\"{width:.2}%\" height=\"14\">\
                     <title>{name}: {part} {time} of {all}</title></rect>"
                );
                left += width;
            }
            html.push_str("</svg>");
        }
        html.push_str("</svg></figure>\n");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(bars: &[(f64, f64, f64)]) -> String {
        let mut page = Page::new("");
        page.chart("<caption>", bars, None, &[([0.0, 2.0], "<run>")]);
        page.body
    }

    fn two_bars(height: f64) -> String {
        chart(&[(0.0, 1.0, height), (3.0, 4.0, height / 2.0)])
    }

    #[test]
    fn a_chart_escapes_its_text_and_tells_its_scale() {
        let html = two_bars(3700.0);
        for part in [
            "&lt;caption&gt;: at most 3.7k, over 4.0 s</figcaption>",
            "x=\"0.0\" width=\"500.0\" height=\"100\"><title>&lt;run&gt;</title>",
            // The whole and half of the height.
            "M0.0 100V0.0H250.0V100zM750.0 100V50.0H1000.0V100z",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn the_longest_bar_is_as_wide_as_the_chart_and_its_parts_are_in_a_row() {
        let stacked = |bars: &[(&str, Vec<f64>)]| {
            Page::new("")
                .stacked("<c>", &["<one>", "two"], bars)
                .body
                .clone()
        };
        let html = stacked(&[("<a>", vec![1.0, 3.0]), ("b", vec![1.0, 0.0])]);
        for part in [
            "<figcaption>&lt;c&gt;</figcaption><p><span class=\"part0\">■</span> &lt;one&gt; 40.0 % ",
            "height:40px",
            "<text x=\"4\" y=\"14\">&lt;a&gt;</text>",
            "<rect class=\"part0\" x=\"35.00%\" y=\"3\" width=\"16.25%\"",
            "<rect class=\"part1\" x=\"51.25%\" y=\"3\" width=\"48.75%\" height=\"14\"><title>&lt;a&gt;: two 3.0 s of 4.0 s</title>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(
            html.matches("<svg ").count(),
            html.matches("</svg>").count()
        );
        assert!(stacked(&[]).is_empty() && stacked(&[("a", vec![0.0, 0.0])]).is_empty());
    }

    #[test]
    fn a_chart_without_bars_is_left_out() {
        assert!(two_bars(0.0).is_empty() && chart(&[]).is_empty());
        for height in [1e-300, 1e300] {
            assert!(!two_bars(height).contains("NaN"), "{height}");
        }
    }
}
