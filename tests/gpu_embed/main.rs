//! `gpu-embed`, the real program.

#![cfg(feature = "torch")]

mod blocks;
#[path = "../common/mod.rs"]
mod common;
mod devices;
mod download;
mod outputs;
mod resume;
mod run;
mod windows;
mod workers;

/// Every kind of output, of all layers.
const EVERY_OUTPUT: [&str; 5] = ["--layers", "all", "--residues", "--logits", "--contacts"];
