//! `monitor-log`, the real program.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod gpu;
mod record;
mod report;
mod top;
mod wrap;
