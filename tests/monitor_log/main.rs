//! `monitor-log`, the real program.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod gpu;
mod record;
mod report;
mod report_join;
mod report_page;
mod top;
mod wrap;
