//! Tables.

use std::fmt::Write;

use crate::escape;

/// A table: a row of headings, and rows of cells.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    text: Option<String>,
    class: &'static str,
}

/// How good or bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Needs attention.
    Fair,
    /// Needs repair.
    Bad,
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            class: "",
        }
    }

    /// A right-aligned number; a dash if it is unknown.
    pub fn number(text: Option<impl Into<String>>) -> Self {
        Self {
            text: text.map(Into::into),
            class: "number",
        }
    }

    /// A highlighted word.
    pub fn badge(tone: Tone, text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            class: match tone {
                Tone::Good => "good",
                Tone::Fair => "fair",
                Tone::Bad => "bad",
            },
        }
    }

    pub(crate) fn content(&self) -> String {
        let text = self.text.as_deref().map_or_else(|| "–".to_owned(), escape);
        match self.class {
            "" | "number" => text,
            tone => format!("<span class=\"badge {tone}\">{text}</span>"),
        }
    }

    fn html(&self) -> String {
        let class = match self.class {
            "number" => " class=\"number\"",
            _ => "",
        };
        format!("<td{class}>{}</td>", self.content())
    }
}

impl Table {
    /// Returns a table with these headings and no rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            columns: columns.into_iter().map(str::to_owned).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: a cell for each heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn html(&self) -> String {
        // The heading of a column of numbers is right-aligned as well.
        let is_number = |column: usize| {
            let first = self.rows.first().and_then(|row| row.get(column));
            first.is_some_and(|cell| cell.class == "number")
        };
        let mut html = String::from("<div class=\"wide\"><table><thead><tr>");
        for (column, name) in self.columns.iter().enumerate() {
            let class = is_number(column).then_some(" class=\"number\"");
            let class = class.unwrap_or_default();
            // Writing to a string does not fail.
            let _ = write!(html, "<th scope=\"col\"{class}>{}</th>", escape(name));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            let cells: String = row.iter().map(Cell::html).collect();
            let _ = write!(html, "\n<tr>{cells}</tr>");
        }
        html.push_str("</tbody></table></div>\n");
        html
    }
}
