//! Bars.

use ratatui::style::{Color, Stylize};
use ratatui::text::Span;

/// Eighths of a cell, from one on.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A bar of `width` cells, filled to `share`; dots where that is not known.
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
    fn a_bar_is_as_wide_as_it_should_be_whatever_its_share() {
        let text = |share| {
            bar(share, 4, Color::Red)
                .map(|span| span.content.into_owned())
                .concat()
        };
        for (share, expected) in [
            (None, "····"),
            (Some(0.0), "░░░░"),
            (Some(0.01), "░░░░"),
            (Some(0.04), "▏░░░"),
            (Some(0.5), "██░░"),
            (Some(0.99), "████"),
            (Some(7.0), "████"),
            (Some(-1.0), "░░░░"),
        ] {
            assert_eq!(text(share), expected, "{share:?}");
        }
    }
}
