//! Aligned columns.

use plmkit_kit::one_line;
use ratatui::text::{Line, Span};

/// The longest text of a cell, in characters.
const MAX_CELL: usize = 200;

const GAP: &str = "  ";

pub(super) type Row = Vec<Span<'static>>;

/// Aligns the columns of `rows`. `layout` has a character for each column: `<` and `>` align it to the left and to the right. The
/// terminal cuts what does not fit.
pub(super) fn table(layout: &str, mut rows: Vec<Row>) -> Vec<Line<'static>> {
    // Names of runs, programs and GPUs may contain anything.
    for cell in rows.iter_mut().flatten() {
        cell.content = one_line(&cell.content, MAX_CELL).into();
    }
    let longest = |column: usize| {
        let cells = rows.iter().filter_map(|row: &Row| row.get(column));
        cells.map(|cell| cell.content.chars().count()).max()
    };
    let columns = 0..layout.len();
    let widths: Vec<usize> = columns.map(|n| longest(n).unwrap_or(0)).collect();
    let line = |row: Row| {
        let cells = row.into_iter().zip(layout.chars()).zip(&widths);
        let cells = cells.filter(|(_, width)| **width > 0);
        let cells = cells.enumerate().flat_map(|(n, ((cell, align), &width))| {
            let text = match align {
                '>' => format!("{:>width$}", cell.content),
                _ => format!("{:<width$}", cell.content),
            };
            let gap = if n > 0 { GAP } else { "" };
            [Span::raw(gap), Span::styled(text, cell.style)]
        });
        cells.collect()
    };
    rows.into_iter().map(line).collect()
}

/// Joins cells.
pub(super) fn joined(cells: Row) -> Line<'static> {
    table(&"<".repeat(cells.len()), vec![cells]).remove(0)
}
