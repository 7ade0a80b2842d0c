//! All programs together: the chain, common options and limits.
mod combined;
mod command_line;
#[path = "../common/mod.rs"]
mod common;
mod duplicates;
mod files;
mod memory;
mod open_files;
