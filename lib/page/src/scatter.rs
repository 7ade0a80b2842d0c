//! Scatter plots, drawn as SVG inside the page.

use std::fmt::Write;

use crate::escape::escape;
use crate::page::Page;

/// The size of the drawing: as wide as this, and as high as its points need.
const WIDTH: f64 = 1600.0;
const MOST_HEIGHT: f64 = 1000.0;
const MARGIN: f64 = 12.0;
/// Nobody tells more colours apart.
const NAMED: usize = 24;

/// Points of one colour: a name, and the place and the name of each.
pub type Group<'a> = (&'a str, Vec<([f64; 2], &'a str)>);

impl Page {
    /// Adds a scatter plot of groups of points, which have their names where they are pointed at. Both axes have one scale. Adds
    /// nothing if all points are at one place.
    pub fn scatter(&mut self, caption: &str, groups: &[Group<'_>]) -> &mut Self {
        let range = |axis: usize| {
            let points = groups.iter().flat_map(|(_, points)| points);
            points
                .map(|(at, _)| at[axis])
                .fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], at| {
                    [least.min(at), most.max(at)]
                })
        };
        let [[left, right], [bottom, top]] = [0, 1].map(range);
        let room = |most: f64, length: f64| (most - 2.0 * MARGIN) / length;
        let scale = room(WIDTH, right - left).min(room(MOST_HEIGHT, top - bottom));
        if !scale.is_finite() || scale <= 0.0 {
            return self;
        }
        let side = (WIDTH - 2.0 * MARGIN - scale * (right - left)) / 2.0 + MARGIN;
        let height = scale * (top - bottom) + 2.0 * MARGIN;
        let caption = escape(caption);
        // Writing to a string does not fail.
        let _ = write!(
            self.body,
            "<figure><figcaption>{caption}</figcaption><svg class=\"whole\" role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\">"
        );
        for (place, (group, points)) in groups.iter().enumerate() {
            let angle = angle(place);
            let _ = write!(self.body, "<g class=\"hue\" style=\"--angle:{angle}\">");
            for (at, name) in points {
                let (x, y) = (
                    side + scale * (at[0] - left),
                    MARGIN + scale * (top - at[1]),
                );
                let name = match groups.len() {
                    1 => escape(name),
                    _ => format!("{}: {}", escape(group), escape(name)),
                };
                let _ = write!(
                    self.body,
                    "<circle cx=\"{x:.0}\" cy=\"{y:.0}\"><title>{name}</title></circle>"
                );
            }
            self.body.push_str("</g>\n");
        }
        self.body.push_str("</svg>");
        if groups.len() > 1 {
            self.body.push_str("<div class=\"legend\">");
            for (place, (group, _)) in groups.iter().enumerate().take(NAMED) {
                let (angle, group) = (angle(place), escape(group));
                let _ = write!(
                    self.body,
                    "<span class=\"hue\" style=\"--angle:{angle}\">{group}</span>"
                );
            }
            if groups.len() > NAMED {
                let _ = write!(self.body, "<span>and {} more</span>", groups.len() - NAMED);
            }
            self.body.push_str("</div>");
        }
        self.body.push_str("</figure>\n");
        self
    }
}

/// The hue of a group, in degrees: by the golden angle, neighbours are far from each other.
fn angle(place: usize) -> usize {
    (210 + 137 * place) % 360
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(groups: &[Group<'_>]) -> String {
        let mut page = Page::new("");
        page.scatter("<caption>", groups);
        page.body
    }

    #[test]
    fn points_keep_their_proportions_and_their_names() {
        let html = scatter(&[
            ("<a>", vec![([-1.0, 0.0], "<p>"), ([1.0, 0.0], "q")]),
            ("b", vec![([0.0, 0.5], "r")]),
        ]);
        for part in [
            "&lt;caption&gt;</figcaption>",
            "viewBox=\"0 0 1600 418\"",
            "<circle cx=\"12\" cy=\"406\"><title>&lt;a&gt;: &lt;p&gt;</title></circle>",
            "<circle cx=\"800\" cy=\"12\"><title>b: r</title></circle>",
            "<span class=\"hue\" style=\"--angle:347\">b</span>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn points_at_one_place_are_no_plot() {
        assert!(scatter(&[]).is_empty());
        assert!(scatter(&[("a", vec![([1.0, 1.0], "p"), ([1.0, 1.0], "q")])]).is_empty());
    }
}
