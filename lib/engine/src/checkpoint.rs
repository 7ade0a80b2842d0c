//! Finished batches on disk: the output under construction, and what a later run resumes from.
//!
//! `record` says what the files hold, `run_folder` where they are; `blocks` writes them and `resume` takes them over.

mod blocks;
mod encoders;
mod part;
mod record;
mod resume;
mod run_folder;

pub(crate) use blocks::Blocks;
pub(crate) use part::Part;
pub(crate) use resume::{Saved, SavedBlocks};
pub(crate) use run_folder::{RunFolder, remove_file};
