//! All programs together: the chain, common options and limits.

#[cfg(feature = "torch")]
mod combined;
mod command_line;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "torch")]
mod duplicates;
#[cfg(feature = "torch")]
mod files;
mod memory;
mod open_files;
