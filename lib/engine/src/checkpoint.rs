//! Checkpoints: finished batches on disk. They are the output under construction, and what a later run resumes from.
//!
//! `block` defines the metadata of the files and `run_folder` their places. `blocks` writes and loads them, and `part` reads rows.

mod block;
mod blocks;
mod part;
mod run_folder;

pub(crate) use block::OutputBlock;
pub(crate) use blocks::OutputBlocks;
pub(crate) use part::read_part;
pub(crate) use run_folder::{RunFolder, damage, remove_checkpoint};
