//! `monitor-log`, the real program.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod export;
mod gpu;
mod record;
mod report;
mod top;
mod wrap;
