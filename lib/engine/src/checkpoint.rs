//! Checkpoints: finished batches on disk. They are the output under construction, and what a later run resumes from.
//!
//! `block` defines the metadata of the files and reads parts, `run_folder` has their places, and `blocks` writes and loads them.

mod block;
mod blocks;
mod run_folder;

pub(crate) use block::{OutputBlock, read_part};
pub(crate) use blocks::OutputBlocks;
pub(crate) use run_folder::{RunFolder, damage, remove_checkpoint};
pub use run_folder::{has_saved_batches, run_folder};
