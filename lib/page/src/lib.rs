//! HTML pages for people: one file with tables and charts, without scripts and network.
//!
//! All text is escaped: ids, names and messages cannot add markup. Pages have a light, a dark and a print style.
//!
//! ```
//! use plmkit_page::{Cell, Column, Page, Tone};
//!
//! let columns = [
//!     Column::new("run", "", |run: &&str| Cell::badge(Tone::Bad, *run)),
//!     Column::new("letters", "", |run: &&str| Cell::count(run.len() as u64)),
//! ];
//! let mut page = Page::new("Two runs");
//! page.heading("Runs").table(&["<b>a</b>"], &columns);
//! let html = page.finish();
//! assert!(html.starts_with("<!DOCTYPE html>"));
//! assert!(html.contains("&lt;b&gt;a&lt;/b&gt;") && !html.contains("<b>"));
//! ```

mod cell;
mod chart;
mod escape;
mod histogram;
mod page;
mod scale;
mod scatter;
mod table;

pub use cell::{Cell, Tone};
pub use escape::escape;
pub use page::Page;
pub use scale::{duration, short};
pub use scatter::Group;
pub use table::{Column, multiqc, words};
