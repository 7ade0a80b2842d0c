//! Datasets of many parts: the embeddings files of one set of shards, read as one table in the order of the input.
//!
//! [`Parts`] are opened first, then [`Merge`] reads their rows in order: it keeps a window of each part in memory whose rows interleave
//! with those of others. Memory does not grow with the rows or the parts.

mod aliases;
mod combine;
mod error;
mod folder;
mod ids;
mod listing;
mod matrix;
mod merge;
mod missing;
mod output;
mod parts;
mod rejects;
mod select;
mod shared;

pub use combine::{CombineConfig, CombineOutcome, combine};
pub use error::DatasetError;
pub use folder::{DatasetFolder, EMBEDDINGS, OpenedDataset};
pub use ids::AskedIds;
pub use listing::{check_outside, read_dataset, read_lists};
pub use matrix::{ids_beside, write_matrix};
pub use merge::Merge;
pub use parts::{Part, Parts};
pub use select::{Selected, select};
