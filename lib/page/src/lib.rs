//! HTML pages for people: one file with tables and charts, without scripts and network.
//!
//! All text is escaped: ids, names and messages cannot add markup. Pages have a light, a dark and a print style.
//!
//! ```
//! use plmkit_page::{Cell, Page, Table, Tone};
//!
//! let mut table = Table::new(["run", "tokens/s"]);
//! table.row([Cell::text("<b>a</b>"), Cell::number(Some("1,234"))]);
//! table.row([Cell::badge(Tone::Bad, "b"), Cell::number(None::<String>)]);
//! let mut page = Page::new("Two runs");
//! page.heading("Runs").table(&table);
//! let html = page.finish();
//! assert!(html.starts_with("<!DOCTYPE html>"));
//! assert!(html.contains("&lt;b&gt;a&lt;/b&gt;") && !html.contains("<b>"));
//! ```

mod chart;
mod escape;
mod page;
mod scale;
mod table;

pub use chart::{Bars, Figure, Line, Strip, Strips};
pub use escape::escape;
pub use page::Page;
pub use scale::{short, time_unit};
pub use table::{Cell, Column, Table, Tone, multiqc, words};
