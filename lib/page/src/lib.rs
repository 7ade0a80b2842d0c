//! Pages for people: one HTML file with tables and pictures, no scripts, no network.
//!
//! A page shows text that comes from elsewhere: ids, names, messages. Whatever is given to it as text is shown as text;
//! there is no way to hand it markup. It fits into the light and the dark, and on paper.
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

pub use chart::{Bars, Figure, Line, Lines};
pub use escape::escape;
pub use page::Page;
pub use scale::{TimeUnit, short};
pub use table::{Cell, Table, Tone};
