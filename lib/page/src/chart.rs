//! Charts, drawn as SVG inside the page.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::{escape, short};

/// Units of the drawing for a pixel of the page: plotters rounds to whole units.
const UNIT: u32 = 2;
/// The size on a page is fixed, so that all text has one size at any width of the page.
const WIDTH: u32 = 340 * UNIT;
const HEIGHT: u32 = 220 * UNIT;
/// The height of a strip with its label, and of the axis below the last one.
const STRIP: u32 = 84 * UNIT;
const STRIP_LABEL: u32 = 22 * UNIT;
/// Half of a tick label.
const STRIP_END: u32 = 8 * UNIT;
const AXIS: u32 = 40 * UNIT;
const Y_LABELS: u32 = 58 * UNIT;
const STRIP_Y_LABELS: u32 = 40 * UNIT;
const MARGIN: u32 = 8 * UNIT;
const X_LABELS: usize = 6;
/// 13 pixels. plotters writes a part of it.
const FONT: (&str, f64) = ("sans-serif", 13.0 * UNIT as f64 * 1.24);

/// Colours that colour-blind people can tell apart (Okabe and Ito 2008, without black and yellow). The style sheet has
/// brighter ones for a dark page.
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
}

/// Narrow charts above one another over a common axis, one line in each.
#[derive(Clone, Debug)]
pub struct Strips<'a> {
    /// The caption.
    pub caption: &'a str,
    /// The label of the x axis.
    pub x_label: &'a str,
    /// The range of the x axis.
    pub x: Range<f64>,
    /// The strips. Those without points are left out.
    pub strips: Vec<Strip>,
    /// Shaded ranges of the x axis, and their names, which the first strip has where there is room.
    pub shaded: Vec<(Range<f64>, String)>,
}

/// A narrow chart.
#[derive(Clone, Debug)]
pub struct Strip {
    /// The end of the y axis, which starts at 0; `None` for a little above the highest point.
    pub y_max: Option<f64>,
    /// The label.
    pub label: String,
    /// The line.
    pub line: Line,
}

impl Strip {
    fn y_max(&self) -> f64 {
        let points = self.line.pieces.iter().flatten().map(|&(_, y)| y);
        let band = self.line.band.iter().flatten();
        let highest = points.chain(band.map(|&(_, _, high)| high));
        let highest = highest.fold(0.0, f64::max);
        self.y_max.unwrap_or(highest * 1.05)
    }
}

/// A line, in pieces.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its pieces, each with points from left to right. There is a gap between two pieces.
    pub pieces: Vec<Vec<(f64, f64)>>,
    /// A band behind the line: x, low and high, in pieces as well.
    pub band: Vec<Vec<(f64, f64, f64)>>,
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

impl Figure {
    /// Draws strips. Returns `None` without points.
    pub fn strips(strips: &Strips) -> Option<Self> {
        let has_points = |strip: &&Strip| strip.line.pieces.iter().any(|piece| !piece.is_empty());
        let shown: Vec<&Strip> = strips.strips.iter().filter(has_points).collect();
        let strip = if shown.len() == 1 {
            HEIGHT - AXIS
        } else {
            STRIP
        };
        let height = u32::try_from(shown.len()).ok().filter(|&count| count > 0)? * strip + AXIS;
        Some(Self {
            svg: draw(height, |area| draw_strips(area, strips, &shown, strip))?,
            caption: strips.caption.to_owned(),
        })
    }

    /// Draws bars. Returns `None` if all are 0.
    pub fn bars(bars: &Bars) -> Option<Self> {
        Self::bars_to(bars, None)
    }

    /// Draws bars, and a line at the `limit` of their heights. Returns `None` if all are 0.
    pub fn bars_with_limit(bars: &Bars, limit: f64) -> Option<Self> {
        Self::bars_to(bars, Some(limit))
    }

    fn bars_to(bars: &Bars, limit: Option<f64>) -> Option<Self> {
        let heights = bars.bars.iter().map(|(_, height)| *height);
        let highest = heights.reduce(f64::max).filter(|&highest| highest > 0.0)?;
        let y_max = 1.05 * limit.map_or(highest, |limit| limit.max(highest));
        Some(Self {
            svg: draw(HEIGHT, |area| draw_bars(area, bars, y_max, limit))?,
            caption: bars.caption.to_owned(),
        })
    }

    pub(crate) fn html(&self) -> String {
        let (svg, caption) = (&self.svg, escape(&self.caption));
        format!("<figure>{svg}<figcaption>{caption}</figcaption></figure>")
    }
}

fn colour(position: usize) -> RGBColor {
    COLOURS[position % COLOURS.len()]
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Returns the SVG, in the colour of the surrounding text. `None` for an invalid range: nothing else fails in a string.
fn draw(height: u32, draw: impl for<'a> Fn(&Area<'a>) -> Drawn<'a>) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&area).ok()?;
        area.present().ok()?;
    }
    // Text and axes are black, which plotters writes so. The style sheet has the font.
    let svg = svg.replace("\"#000000\"", "\"currentColor\"");
    let svg = svg
        .replace(" font-family=\"sans-serif\"", "")
        .replace(" opacity=\"1\"", "");
    Some(svg.replacen("<svg ", "<svg role=\"img\" ", 1))
}

/// Formats a position on an axis.
type Label<'a, T> = &'a dyn Fn(&T) -> String;

/// Draws the axes. The x axis has a label, a number of ticks, and a format of tick labels.
fn draw_axes<'a, X>(
    chart: &mut ChartContext<'_, SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>,
    (x_label, x_labels, x_text): (&str, usize, Label<'_, X::ValueType>),
    (y_label, y_labels): (&str, usize),
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
        .y_labels(y_labels)
        .x_label_formatter(&x_text)
        .y_label_formatter(&|y| short(*y))
        .x_desc(x_label)
        .y_desc(y_label)
        .draw()
}

fn draw_strips<'a>(area: &Area<'a>, strips: &Strips, shown: &[&Strip], height: u32) -> Drawn<'a> {
    for (position, strip) in shown.iter().enumerate() {
        let is_last = position + 1 == shown.len();
        let (top, axis) = (position as u32 * height, if is_last { AXIS } else { 0 });
        let area = area.clone().shrink((0, top), (WIDTH, height + axis));
        // The axis takes the place of the margin.
        let bottom = if is_last { 0 } else { STRIP_END };
        area.draw_text(
            &strip.label,
            &FONT.into_text_style(&area),
            (MARGIN.cast_signed(), 0),
        )?;
        let mut chart = ChartBuilder::on(&area)
            .margin_top(STRIP_LABEL)
            .margin_right(2 * MARGIN)
            .margin_left(MARGIN)
            .margin_bottom(bottom)
            .x_label_area_size(axis + STRIP_END - bottom)
            .y_label_area_size(STRIP_Y_LABELS)
            .build_cartesian_2d(strips.x.clone(), 0.0..strip.y_max().max(f64::MIN_POSITIVE))?;
        draw_shaded(&mut chart, &strips.shaded)?;
        if position == 0 {
            draw_names(&mut chart, &strips.shaded)?;
        }
        let x_labels = if is_last { X_LABELS } else { 0 };
        draw_axes(
            &mut chart,
            (strips.x_label, x_labels, &|x| short(*x)),
            ("", 3),
        )?;
        draw_line(&mut chart, &strip.line, colour(position))?;
    }
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn draw_shaded<'a>(chart: &mut Chart<'a, '_>, shaded: &[(Range<f64>, String)]) -> Drawn<'a> {
    let (x, y) = (chart.x_range(), chart.y_range());
    chart.draw_series(shaded.iter().map(|(shaded, _)| {
        let corners = [
            (shaded.start.max(x.start), y.start),
            (shaded.end.min(x.end), y.end),
        ];
        Rectangle::new(corners, BLACK.mix(0.07).filled())
    }))?;
    Ok(())
}

/// Writes the names of shaded ranges that have room for eight pixels a character, low: lines of busy GPUs are at the top.
fn draw_names<'a>(chart: &mut Chart<'a, '_>, shaded: &[(Range<f64>, String)]) -> Drawn<'a> {
    let (x, y) = (chart.x_range(), chart.y_range());
    let pixels = f64::from(WIDTH) / (x.end - x.start) / f64::from(8 * UNIT);
    let with_room = shaded.iter().filter(|(range, name)| {
        (range.end.min(x.end) - range.start) * pixels > name.chars().count() as f64
    });
    chart.draw_series(with_room.map(|(range, name)| {
        Text::new(name.clone(), (range.start.max(x.start), y.end * 0.35), FONT)
    }))?;
    Ok(())
}

fn draw_line<'a>(chart: &mut Chart<'a, '_>, line: &Line, colour: RGBColor) -> Drawn<'a> {
    for piece in &line.band {
        let low = piece.iter().map(|&(x, low, _)| (x, low));
        let high = piece.iter().rev().map(|&(x, _, high)| (x, high));
        let outline: Vec<_> = low.chain(high).collect();
        chart.draw_series([Polygon::new(outline, colour.mix(0.25))])?;
    }
    let style = colour.stroke_width(3 * UNIT / 2);
    for piece in &line.pieces {
        match piece[..] {
            // A line of one point would be invisible.
            [point] => {
                chart.draw_series([Circle::new(point, 3, style.filled())])?;
            }
            _ => {
                chart.draw_series(LineSeries::new(piece.iter().copied(), style))?;
            }
        }
    }
    Ok(())
}

fn draw_bars<'a>(area: &Area<'a>, bars: &Bars, y_max: f64, limit: Option<f64>) -> Drawn<'a> {
    let count = bars.bars.len();
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_right(2 * MARGIN)
        .x_label_area_size(AXIS)
        .y_label_area_size(Y_LABELS)
        // plotters has a segment for the end of the range, too.
        .build_cartesian_2d((0..(count - 1).max(1)).into_segmented(), 0.0..y_max)?;
    // As many names as have room, with 8 pixels for a character.
    let longest = bars.bars.iter().map(|(name, _)| name.chars().count()).max();
    let room = (WIDTH - Y_LABELS - 3 * MARGIN) as usize / count.max(1);
    let every = (longest.unwrap_or(0) * 8 * UNIT as usize)
        .div_ceil(room.max(1))
        .max(1);
    let name = |place: &SegmentValue<usize>| {
        let bar = match place {
            SegmentValue::CenterOf(position) if position.is_multiple_of(every) => {
                bars.bars.get(*position)
            }
            _ => None,
        };
        bar.map_or_else(String::new, |(name, _)| name.clone())
    };
    draw_axes(
        &mut chart,
        (bars.x_label, count + 1, &name),
        (bars.y_label, 6),
    )?;
    chart.draw_series(bars.bars.iter().enumerate().map(|(bar, (_, height))| {
        let corners = [
            (SegmentValue::Exact(bar), 0.0),
            (SegmentValue::Exact(bar + 1), *height),
        ];
        let mut drawn = Rectangle::new(corners, colour(0).filled());
        drawn.set_margin(0, 0, UNIT, UNIT);
        drawn
    }))?;
    if let Some(limit) = limit {
        let ends = [0, count].map(|end| (SegmentValue::Exact(end), limit));
        let style = colour(1).stroke_width(3 * UNIT / 2);
        chart.draw_series(LineSeries::new(ends, style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: Vec<(f64, f64)>) -> Line {
        Line {
            band: vec![points.iter().map(|&(x, y)| (x, y - 0.5, y)).collect()],
            pieces: vec![points],
        }
    }

    fn lines(points: Vec<(f64, f64)>) -> Option<Figure> {
        Figure::strips(&Strips {
            caption: "<caption>",
            x_label: "<x>",
            x: 0.0..10.0,
            strips: vec![Strip {
                y_max: None,
                label: "y".to_owned(),
                line: line(points),
            }],
            shaded: Vec::new(),
        })
    }

    #[test]
    fn a_chart_has_the_colour_of_the_text_and_escapes_its_own() {
        let html = lines(vec![(0.0, 1.0), (5.0, 3.0), (10.0, 2.0)]);
        let html = html.unwrap().html();
        for part in [
            "&lt;x&gt;",
            "&lt;caption&gt;",
            "currentColor",
            "#0072B2",
            "<polygon ",
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
        for (height, is_drawn) in [(0.0, false), (5.0, true)] {
            let bars = Figure::bars(&Bars {
                caption: "",
                x_label: "",
                y_label: "",
                bars: vec![("bar".to_owned(), 0.0), ("bar".to_owned(), height)],
            });
            assert_eq!(bars.is_some(), is_drawn);
        }
        let bars = Bars {
            caption: "",
            x_label: "",
            y_label: "",
            bars: vec![("bar".to_owned(), 5.0)],
        };
        for (figure, is_limited) in [
            (Figure::bars(&bars), false),
            (Figure::bars_with_limit(&bars, 9.0), true),
        ] {
            let html = figure.expect("a bar").html();
            assert_eq!(html.contains("#D55E00"), is_limited, "{html}");
        }
    }

    #[test]
    fn a_shaded_range_has_its_name_where_there_is_room() {
        let strips = Figure::strips(&Strips {
            caption: "",
            x_label: "",
            x: 0.0..10.0,
            strips: vec![Strip {
                y_max: Some(1.0),
                label: "busy".to_owned(),
                line: line(vec![(0.0, 1.0), (10.0, 1.0)]),
            }],
            shaded: vec![
                (0.0..5.0, "<a>".to_owned()),
                (6.0..6.1, "narrow".to_owned()),
            ],
        });
        let html = strips.unwrap().html();
        assert!(
            html.contains("&lt;a&gt;") && !html.contains("narrow"),
            "{html}"
        );
        assert_eq!(html.matches("<rect").count(), 2);
    }
}
