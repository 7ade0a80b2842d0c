//! Pictures, drawn as SVG inside the page.

use std::fmt::Write;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::{escape, short};

const WIDTH: u32 = 640;
const HEIGHT: u32 = 280;
const FONT: (&str, u32) = ("sans-serif", 14);

/// Colours that colour-blind people tell apart, readable on light and dark (Okabe and Ito 2008, without black and yellow).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// A picture with a caption.
#[derive(Clone, Debug)]
pub struct Figure {
    svg: String,
    caption: String,
    /// Colours and what they stand for; none where there is one only.
    key: Vec<(RGBColor, String)>,
}

/// Lines over a common axis.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    /// What is under the picture.
    pub caption: &'a str,
    /// What is along the bottom.
    pub x_label: &'a str,
    /// Where the bottom axis begins and ends.
    pub x: Range<f64>,
    /// What is along the side.
    pub y_label: &'a str,
    /// Where the side axis ends, which begins at 0; `None`: a little above the highest point.
    pub y_most: Option<f64>,
    /// The lines.
    pub lines: Vec<Line>,
    /// Stretches of the bottom axis that are shaded.
    pub shaded: Vec<Range<f64>>,
}

/// A line and its name.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it stands for.
    pub name: String,
    /// Its pieces, each of points from left to right: between two of them nothing is known.
    pub pieces: Vec<Vec<(f64, f64)>>,
}

/// Bars side by side.
#[derive(Clone, Debug)]
pub struct Bars<'a> {
    /// What is under the picture.
    pub caption: &'a str,
    /// What is along the bottom.
    pub x_label: &'a str,
    /// What is along the side.
    pub y_label: &'a str,
    /// The bars: what is under each and how high it is.
    pub bars: Vec<(String, f64)>,
}

impl Figure {
    /// Draws lines. `None` where there is nothing to draw.
    pub fn lines(lines: &Lines) -> Option<Self> {
        let points = || {
            lines
                .lines
                .iter()
                .flat_map(|line| line.pieces.iter().flatten())
        };
        points().next()?;
        let highest = points().map(|&(_, y)| y).fold(0.0, f64::max);
        let svg = draw(|area| draw_lines(area, lines, lines.y_most.unwrap_or(highest * 1.05)))?;
        let several = lines.lines.len() > 1;
        let named = lines.lines.iter().enumerate();
        let key = named.map(|(position, line)| (colour(position), line.name.clone()));
        Some(Self {
            svg,
            caption: lines.caption.to_owned(),
            key: key.filter(|_| several).collect(),
        })
    }

    /// Draws bars. `None` where there is nothing to draw.
    pub fn bars(bars: &Bars) -> Option<Self> {
        let highest = bars
            .bars
            .iter()
            .map(|(_, height)| *height)
            .fold(0.0, f64::max);
        if highest <= 0.0 {
            return None;
        }
        Some(Self {
            svg: draw(|area| draw_bars(area, bars, highest * 1.05))?,
            caption: bars.caption.to_owned(),
            key: Vec::new(),
        })
    }

    pub(crate) fn html(&self) -> String {
        let caption = escape(&self.caption);
        let mut html = format!("<figure>{}<figcaption>{caption}", self.svg);
        for (RGBColor(r, g, b), name) in &self.key {
            // Writing to a string does not fail.
            let _ = write!(
                html,
                " <span class=\"key\" style=\"--key: #{r:02x}{g:02x}{b:02x}\">{}</span>",
                escape(name)
            );
        }
        html.push_str("</figcaption></figure>");
        html
    }
}

fn colour(position: usize) -> RGBColor {
    COLOURS[position % COLOURS.len()]
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// The picture, in the colour of the text around it. `None` where a range is no range: nothing else fails in a string.
fn draw(draw: impl for<'a> Fn(&Area<'a>) -> Drawn<'a>) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        draw(&area).ok()?;
        area.present().ok()?;
    }
    // What is black is text and axes; plotters writes colours so.
    let svg = svg.replace("\"#000000\"", "\"currentColor\"");
    Some(svg.replacen("<svg ", "<svg role=\"img\" ", 1))
}

/// What a place on an axis is called.
type Label<'a, T> = &'a dyn Fn(&T) -> String;

/// Draws the axes: of the bottom one what it is, how many labels it has and what they say.
fn draw_axes<'a, X>(
    chart: &mut ChartContext<'_, SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>,
    (x_label, x_labels, x_text): (&str, usize, Label<'_, X::ValueType>),
    y_label: &str,
) -> Drawn<'a>
where
    X: Ranged + ValueFormatter<X::ValueType>,
{
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.6))
        .label_style(FONT)
        .x_labels(x_labels)
        .y_labels(6)
        .x_label_formatter(&x_text)
        .y_label_formatter(&|y| short(*y))
        .x_desc(x_label)
        .y_desc(y_label)
        .draw()
}

fn draw_lines<'a>(area: &Area<'a>, lines: &Lines, y_most: f64) -> Drawn<'a> {
    let y = 0.0..y_most.max(f64::MIN_POSITIVE);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(lines.x.clone(), y.clone())?;
    chart.draw_series(lines.shaded.iter().map(|shaded| {
        let corners = [
            (shaded.start.max(lines.x.start), y.start),
            (shaded.end.min(lines.x.end), y.end),
        ];
        Rectangle::new(corners, BLACK.mix(0.07).filled())
    }))?;
    draw_axes(
        &mut chart,
        (lines.x_label, 8, &|x| short(*x)),
        lines.y_label,
    )?;
    for (position, line) in lines.lines.iter().enumerate() {
        let style = colour(position).stroke_width(2);
        for piece in &line.pieces {
            match piece[..] {
                // A line of one point has no length.
                [point] => {
                    chart.draw_series([Circle::new(point, 2, style.filled())])?;
                }
                _ => {
                    chart.draw_series(LineSeries::new(piece.iter().copied(), style))?;
                }
            }
        }
    }
    Ok(())
}

fn draw_bars<'a>(area: &Area<'a>, bars: &Bars, y_most: f64) -> Drawn<'a> {
    let count = bars.bars.len();
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((0..count).into_segmented(), 0.0..y_most)?;
    let name = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(bar) => bars
            .bars
            .get(*bar)
            .map(|(name, _)| name.clone())
            .unwrap_or_default(),
        _ => String::new(),
    };
    draw_axes(&mut chart, (bars.x_label, count + 1, &name), bars.y_label)?;
    chart.draw_series(bars.bars.iter().enumerate().map(|(bar, (_, height))| {
        let corners = [
            (SegmentValue::Exact(bar), 0.0),
            (SegmentValue::Exact(bar + 1), *height),
        ];
        let mut drawn = Rectangle::new(corners, colour(0).filled());
        drawn.set_margin(0, 0, 3, 3);
        drawn
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: Vec<(f64, f64)>) -> Option<Figure> {
        Figure::lines(&Lines {
            caption: "<caption>",
            x_label: "<x>",
            x: 0.0..10.0,
            y_label: "y",
            y_most: None,
            lines: vec![
                Line {
                    name: "one & only".to_owned(),
                    pieces: vec![points],
                },
                Line {
                    name: "two".to_owned(),
                    pieces: Vec::new(),
                },
            ],
            shaded: vec![2.0..30.0],
        })
    }

    #[test]
    fn a_picture_has_the_colour_of_the_text_and_its_text_is_text() {
        let html = lines(vec![(0.0, 1.0), (5.0, 3.0), (10.0, 2.0)])
            .unwrap()
            .html();
        assert!(
            html.contains("&lt;x&gt;")
                && html.contains("&lt;caption&gt;")
                && html.contains("one &amp; only")
        );
        assert!(
            html.contains("currentColor") && !html.contains("#000000"),
            "{html}"
        );
        assert!(
            html.contains("#0072B2") && html.contains("#d55e00"),
            "{html}"
        );
    }

    #[test]
    fn of_nothing_there_is_no_picture() {
        assert!(lines(Vec::new()).is_none());
        let bars = |heights: [f64; 2]| {
            let bars = heights.map(|height| (height.to_string(), height)).to_vec();
            Figure::bars(&Bars {
                caption: "",
                x_label: "",
                y_label: "",
                bars,
            })
        };
        assert!(bars([0.0, 0.0]).is_none());
        assert!(bars([0.0, 5.0]).is_some());
    }

    #[test]
    fn what_has_no_extent_is_drawn_all_the_same() {
        assert!(lines(vec![(3.0, 0.0)]).is_some());
        assert!(lines(vec![(3.0, 1e300)]).is_some());
    }
}
