//! `monitor-log`, the real program.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod driver;
mod estimate;
mod export;
mod gpu;
mod hang;
mod live_run;
mod metrics;
mod record;
mod report;
mod report_join;
mod terminal;
mod top;
mod top_screen;
mod wrap;
