//! Tables.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::cell::Cell;
use crate::escape::escape;
use crate::page::Page;

/// A column: what it has of each row.
#[derive(Clone, Copy, Debug)]
pub struct Column<T> {
    name: &'static str,
    unit: &'static str,
    cell: fn(&T) -> Cell,
    multiqc: Option<InMultiqc>,
}

/// A column of `MultiQC`: its key, its description, the colour scale of its numbers, if any, and whether it is shown at first.
type InMultiqc = (&'static str, &'static str, &'static str, bool);

impl<T> Column<T> {
    /// A column with a name, a unit that may be empty, and its cell of a row.
    pub const fn new(name: &'static str, unit: &'static str, cell: fn(&T) -> Cell) -> Self {
        Self {
            name,
            unit,
            cell,
            multiqc: None,
        }
    }

    /// Adds the column to tables for `MultiQC`: its key, its description, the colour scale of its numbers, if any, and whether it
    /// is shown at first.
    #[must_use]
    pub const fn multiqc(
        self,
        key: &'static str,
        help: &'static str,
        scale: &'static str,
        is_shown: bool,
    ) -> Self {
        Self {
            multiqc: Some((key, help, scale, is_shown)),
            ..self
        }
    }

    fn heading(&self) -> String {
        match self.unit {
            "" => self.name.to_owned(),
            unit => format!("{}, {unit}", self.name),
        }
    }
}

/// Returns the known cells of a row in words: `tokens 2,890`, `time 12.50 s`.
pub fn words<T>(row: &T, columns: &[Column<T>]) -> Vec<String> {
    let cells = columns.iter().filter_map(|column| {
        let text = (column.cell)(row).text?;
        let words = [column.name, &text, column.unit].into_iter();
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        Some(words.join(" "))
    });
    cells.collect()
}

/// Returns the headers and the data of a table of `MultiQC`'s custom content: a row for each name. Unknown cells are left out.
pub fn multiqc<T>(rows: &[(String, T)], columns: &[Column<T>]) -> (Value, Value) {
    let columns = || {
        columns
            .iter()
            .filter_map(|column| Some((column, column.multiqc?)))
    };
    let known = |row: &T| {
        let cell = |column: &Column<T>| (column.cell)(row).json();
        let cells = columns().filter_map(|(column, (key, ..))| Some((key, cell(column)?)));
        cells.map(|(key, cell)| (key.to_owned(), cell)).collect()
    };
    let data = rows
        .iter()
        .map(|(name, row)| (name.clone(), Value::Object(known(row))));
    // The order of an object is lost, so each column has its place.
    let headers = columns().enumerate().map(|(place, (column, multiqc))| {
        let (key, help, scale, is_shown) = multiqc;
        let mut header = json!({
            "title": column.name, "description": help, "placement": 10 * (place + 1), "hidden": !is_shown,
            "scale": if scale.is_empty() { false.into() } else { Value::from(scale) },
        });
        let mut cells = rows.iter().map(|(_, row)| (column.cell)(row));
        if let Some((_, decimals)) = cells.find_map(|cell| cell.number) {
            (header["format"], header["min"]) = (format!("{{:,.{decimals}f}}").into(), 0.into());
        }
        match column.unit {
            "" => {}
            "%" => (header["suffix"], header["max"]) = (" %".into(), 100.into()),
            unit => header["suffix"] = format!(" {unit}").into(),
        }
        (key.to_owned(), header)
    });
    (
        Value::Object(headers.collect()),
        Value::Object(data.collect()),
    )
}

impl Page {
    /// Adds a table with a row for each of `rows`, unless there is none. A column without any known cell is left out.
    pub fn table<'a, T: 'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a T>,
        columns: &[Column<T>],
    ) -> &mut Self {
        let rows: Vec<&T> = rows.into_iter().collect();
        let is_known =
            |column: &&Column<T>| rows.iter().any(|row| (column.cell)(row).text.is_some());
        let columns: Vec<&Column<T>> = columns.iter().filter(is_known).collect();
        if columns.is_empty() {
            return self;
        }
        let html = &mut self.body;
        html.push_str("<div class=\"wide\"><table><thead><tr>");
        for column in &columns {
            // The heading of a column of numbers is right-aligned as well.
            let first = rows.first().map(|row| (column.cell)(row));
            let class = first.map_or("", |cell| cell.alignment());
            let name = escape(&column.heading());
            // Writing to a string does not fail.
            let _ = write!(html, "<th scope=\"col\"{class}>{name}</th>");
        }
        html.push_str("</tr></thead><tbody>");
        for row in rows {
            html.push_str("\n<tr>");
            for column in &columns {
                let cell = (column.cell)(row);
                let _ = write!(html, "<td{}>{}</td>", cell.alignment(), cell.content());
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div>\n");
        self
    }
}
