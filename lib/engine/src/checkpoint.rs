//! Checkpoints: finished batches on disk. They are the output under construction, and what a later run resumes from.
//!
//! `record` defines the metadata of the files and `run_folder` their places. `blocks` writes them and `resume` reads them.

mod blocks;
mod encoders;
mod part;
mod record;
mod resume;
mod run_folder;

pub(crate) use blocks::Blocks;
pub(crate) use part::Part;
pub(crate) use resume::SavedWork;
pub(crate) use run_folder::RunFolder;
