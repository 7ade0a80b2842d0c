//! Bars.

use ratatui::style::{Color, Stylize};
use ratatui::text::Span;

/// Eighths of a cell, from one to seven.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Returns a bar of `width` cells, filled to `share`; dots for an unknown share.
pub(super) fn bar(share: Option<f64>, width: u16, color: Color) -> [Span<'static>; 2] {
    let width = usize::from(width);
    let Some(share) = share else {
        return [Span::default(), Span::from("·".repeat(width)).dim()];
    };
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let (full, rest) = (eighths / 8, eighths % 8);
    let mut filled = "█".repeat(full);
    filled.extend(rest.checked_sub(1).map(|at| EIGHTHS[at]));
    let empty = "░".repeat(width - full - usize::from(rest > 0));
    [Span::from(filled).fg(color), Span::from(empty).dim()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_width_for_any_share() {
        for (share, expected) in [
            (None, "····"),
            (Some(0.01), "░░░░"),
            (Some(0.04), "▏░░░"),
            (Some(0.5), "██░░"),
            (Some(7.0), "████"),
            (Some(-1.0), "░░░░"),
        ] {
            let spans = bar(share, 4, Color::Red);
            let text = spans.map(|span| span.content.into_owned()).concat();
            assert_eq!(text, expected, "{share:?}");
        }
    }
}
