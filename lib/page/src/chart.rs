//! Charts, drawn as SVG inside the page.

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

/// Colours that colour-blind people can tell apart, on light and dark (Okabe and Ito 2008, without black and yellow).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// A chart with a caption.
#[derive(Clone, Debug)]
pub struct Figure {
    svg: String,
    caption: String,
    /// The legend; empty for a single line.
    key: Vec<(RGBColor, String)>,
}

/// Lines over a common axis.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    /// The caption.
    pub caption: &'a str,
    /// The label of the x axis.
    pub x_label: &'a str,
    /// The range of the x axis.
    pub x: Range<f64>,
    /// The label of the y axis.
    pub y_label: &'a str,
    /// The end of the y axis, which starts at 0; `None` for a little above the highest point.
    pub y_max: Option<f64>,
    /// The lines.
    pub lines: Vec<Line>,
    /// Shaded ranges of the x axis.
    pub shaded: Vec<Range<f64>>,
}

/// A named line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its pieces, each with points from left to right. There is a gap between two pieces.
    pub pieces: Vec<Vec<(f64, f64)>>,
}

/// Bars side by side.
#[derive(Clone, Debug)]
pub struct Bars<'a> {
    /// The caption.
    pub caption: &'a str,
    /// The label of the x axis.
    pub x_label: &'a str,
    /// The label of the y axis.
    pub y_label: &'a str,
    /// The bars: label and height of each.
    pub bars: Vec<(String, f64)>,
}

/// Points, coloured by a third number.
#[derive(Clone, Debug)]
pub struct Points<'a> {
    /// The caption.
    pub caption: &'a str,
    /// The label of the x axis.
    pub x_label: &'a str,
    /// The label of the y axis.
    pub y_label: &'a str,
    /// The points: x, y, and the position of their class in `classes`.
    pub points: Vec<(f64, f64, usize)>,
    /// The names of the classes, of which there are at most six.
    pub classes: Vec<String>,
}

impl Figure {
    /// Draws points. Returns `None` without points.
    pub fn points(points: &Points) -> Option<Self> {
        let range = |value: fn(&(f64, f64, usize)) -> f64| {
            let values = || {
                points
                    .points
                    .iter()
                    .map(value)
                    .filter(|value| value.is_finite())
            };
            let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
            let margin = ((high - low) * 0.03).max(high.abs() * 1e-3).max(1e-6);
            Some(low - margin..high + margin)
        };
        let (x, y) = (range(|point| point.0)?, range(|point| point.1)?);
        let used = |class: usize| points.points.iter().any(|point| point.2 == class);
        let classes = points.classes.iter().enumerate();
        let classes = classes.filter(|&(class, _)| used(class));
        Some(Self {
            svg: draw(|area| draw_points(area, points, x.clone(), y.clone()))?,
            caption: points.caption.to_owned(),
            key: classes
                .map(|(class, name)| (colour(class), name.clone()))
                .collect(),
        })
    }

    /// Draws lines. Returns `None` without points.
    pub fn lines(lines: &Lines) -> Option<Self> {
        let pieces = lines.lines.iter().flat_map(|line| &line.pieces);
        let heights = pieces.flatten().map(|&(_, y)| y);
        let highest = heights.reduce(f64::max)?.max(0.0);
        let svg = draw(|area| draw_lines(area, lines, lines.y_max.unwrap_or(highest * 1.05)))?;
        let several = lines.lines.len() > 1;
        let named = lines.lines.iter().enumerate();
        let key = named.map(|(position, line)| (colour(position), line.name.clone()));
        Some(Self {
            svg,
            caption: lines.caption.to_owned(),
            key: key.filter(|_| several).collect(),
        })
    }

    /// Draws bars. Returns `None` if all are 0.
    pub fn bars(bars: &Bars) -> Option<Self> {
        let heights = bars.bars.iter().map(|(_, height)| *height);
        let highest = heights.reduce(f64::max).filter(|&highest| highest > 0.0)?;
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

/// Returns the SVG, in the colour of the surrounding text. `None` for an invalid range: nothing else fails in a string.
fn draw(draw: impl for<'a> Fn(&Area<'a>) -> Drawn<'a>) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        draw(&area).ok()?;
        area.present().ok()?;
    }
    // Text and axes are black, which plotters writes so.
    let svg = svg.replace("\"#000000\"", "\"currentColor\"");
    Some(svg.replacen("<svg ", "<svg role=\"img\" ", 1))
}

/// Formats a position on an axis.
type Label<'a, T> = &'a dyn Fn(&T) -> String;

/// Draws the axes. The x axis has a label, a number of ticks, and a format of tick labels.
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

fn draw_lines<'a>(area: &Area<'a>, lines: &Lines, y_max: f64) -> Drawn<'a> {
    let y = 0.0..y_max.max(f64::MIN_POSITIVE);
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
                // A line of one point would be invisible.
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

fn draw_points<'a>(area: &Area<'a>, points: &Points, x: Range<f64>, y: Range<f64>) -> Drawn<'a> {
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(x, y)?;
    draw_axes(
        &mut chart,
        (points.x_label, 8, &|x| short(*x)),
        points.y_label,
    )?;
    let finite = points
        .points
        .iter()
        .filter(|point| point.0.is_finite() && point.1.is_finite());
    chart.draw_series(
        finite.map(|&(x, y, class)| Circle::new((x, y), 2, colour(class).mix(0.6).filled())),
    )?;
    Ok(())
}

fn draw_bars<'a>(area: &Area<'a>, bars: &Bars, y_max: f64) -> Drawn<'a> {
    let count = bars.bars.len();
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((0..count).into_segmented(), 0.0..y_max)?;
    let name = |place: &SegmentValue<usize>| {
        let bar = match place {
            SegmentValue::CenterOf(position) => bars.bars.get(*position),
            _ => None,
        };
        bar.map_or_else(String::new, |(name, _)| name.clone())
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
        let line = |name: &str, points| Line {
            name: name.to_owned(),
            pieces: vec![points],
        };
        Figure::lines(&Lines {
            caption: "<caption>",
            x_label: "<x>",
            x: 0.0..10.0,
            y_label: "y",
            y_max: None,
            lines: vec![line("one & only", points), line("two", Vec::new())],
            shaded: vec![2.0..30.0],
        })
    }

    #[test]
    fn a_chart_has_the_colour_of_the_text_and_escapes_its_own() {
        let html = lines(vec![(0.0, 1.0), (5.0, 3.0), (10.0, 2.0)]);
        let html = html.unwrap().html();
        for part in [
            "&lt;x&gt;",
            "&lt;caption&gt;",
            "one &amp; only",
            "currentColor",
            "#0072B2",
            "#d55e00",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("#000000"), "{html}");
    }

    #[test]
    fn an_empty_chart_is_left_out_and_a_single_point_is_drawn() {
        assert!(lines(Vec::new()).is_none());
        for height in [0.0, 1e300] {
            assert!(lines(vec![(3.0, height)]).is_some(), "{height}");
        }
        for (points, is_drawn) in [
            (vec![], false),
            (vec![(1.0, 2.0, 0), (f64::NAN, 1.0, 1)], true),
        ] {
            let figure = Figure::points(&Points {
                caption: "",
                x_label: "",
                y_label: "",
                points,
                classes: vec!["short".to_owned(), "long".to_owned(), "unused".to_owned()],
            });
            assert_eq!(figure.is_some(), is_drawn);
            if let Some(figure) = figure {
                let html = figure.html();
                assert_eq!(html.matches("<circle").count(), 1, "{html}");
                assert!(html.contains("long") && !html.contains("unused"), "{html}");
            }
        }
        for (height, is_drawn) in [(0.0, false), (5.0, true)] {
            let bars = Figure::bars(&Bars {
                caption: "",
                x_label: "",
                y_label: "",
                bars: vec![("bar".to_owned(), 0.0), ("bar".to_owned(), height)],
            });
            assert_eq!(bars.is_some(), is_drawn);
        }
    }
}
