//! Datasets of many parts: the embeddings files of one set of shards, read as one table in the order of the input.
//!
//! [`Parts`] are opened first, then [`Merge`] reads their rows in order: it keeps a window of each part in memory whose rows interleave
//! with those of others. Memory does not grow with the rows or the parts.

mod aliases;
mod combine;
mod error;
mod ids;
mod listing;
mod lookup;
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
pub use ids::AskedIds;
pub use listing::{check_outside, check_parts, check_passed, read_dataset, read_lists};
pub use lookup::{Found, lookup};
pub use matrix::{ids_beside, write_matrix};
pub use merge::{Merge, Piece};
pub use missing::explain_missing;
pub use parts::{Part, Parts};
pub use select::{Selected, select};
pub use shared::Earlier;
