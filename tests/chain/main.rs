//! All programs: what they hand to each other, and what they have in common.

mod command_line;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "torch")]
mod files;
mod memory;
