//! Aligned columns.

use plmkit_contract::one_line;
use ratatui::text::{Line, Span};

/// A column that is cut keeps as much.
const LEAST: usize = 5;

const GAP: &str = "  ";

pub(super) type Row = Vec<Span<'static>>;

/// Aligns the columns of `rows` within `width`. `layout` has a character for each column: `<` and `>` align it to the left and
/// to the right; one that is `~` or `^` is cut first, to its start or its end. Then the last of the others are dropped.
pub(super) fn table(layout: &str, mut rows: Vec<Row>, width: usize) -> Vec<Line<'static>> {
    // Names of runs, programs and GPUs may contain anything.
    for cell in rows.iter_mut().flatten() {
        cell.content = one_line(&cell.content, usize::MAX).into();
    }
    let longest = |column: usize| {
        let cells = rows.iter().filter_map(|row: &Row| row.get(column));
        cells.map(|cell| cell.content.chars().count()).max()
    };
    let count = layout.chars().count();
    let mut natural: Vec<usize> = (0..count).map(|n| longest(n).unwrap_or(0)).collect();
    let flexible = layout.find(['~', '^']);
    let widths = loop {
        let mut widths = natural.clone();
        let shown = widths.iter().filter(|width| **width > 0);
        let all: usize = shown.map(|width| width + GAP.len()).sum();
        let mut over = all.saturating_sub(width + GAP.len());
        if let Some(flexible) = flexible {
            let less = over.min(widths[flexible].saturating_sub(LEAST));
            widths[flexible] -= less;
            over -= less;
        }
        let last = (1..count).rfind(|&n| natural[n] > 0 && flexible != Some(n));
        let Some(last) = last.filter(|_| over > 0) else {
            if let Some(first) = widths.first_mut() {
                *first = width.min(*first);
            }
            break widths;
        };
        natural[last] = 0;
    };
    let line = |row: Row| {
        let cells = row.into_iter().zip(layout.chars()).zip(&widths);
        let cells = cells.filter(|(_, width)| **width > 0);
        let cells = cells.enumerate().flat_map(|(n, ((cell, kind), &width))| {
            let text = cut(&cell.content, width, kind == '^');
            let text = match kind {
                '>' => format!("{text:>width$}"),
                _ => format!("{text:<width$}"),
            };
            let gap = if n > 0 { GAP } else { "" };
            [Span::raw(gap), Span::styled(text, cell.style)]
        });
        cells.collect()
    };
    rows.into_iter().map(line).collect()
}

/// Cuts a text to `width`, to its end or to its start.
fn cut(text: &str, width: usize, keeps_end: bool) -> String {
    match text.chars().count().saturating_sub(width) {
        0 => text.to_owned(),
        _ if width == 0 => String::new(),
        more if keeps_end => format!("…{}", text.chars().skip(more + 1).collect::<String>()),
        _ => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// Joins cells, as many as fit.
pub(super) fn fitting(cells: Row, width: usize) -> Line<'static> {
    let layout = "<".repeat(cells.len());
    table(&layout, vec![cells], width).remove(0)
}
