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
