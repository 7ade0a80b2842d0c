//! Datasets of many parts: the embeddings files of one set of shards, read as one table in the order of the input.
//!
//! [`Parts`] are opened first, then [`Merge`] reads their rows in order: it keeps a window of each part in memory whose rows interleave
//! with those of others. Memory does not grow with the rows or the parts.

mod aliases;
mod combine;
mod error;
mod export;
mod folder;
mod ids;
mod listing;
mod merge;
mod missing;
mod neighbours;
mod output;
mod parts;
mod peptides;
mod rejects;
mod samples;
mod select;
mod shared;
mod variants;
mod vectors;

pub use combine::{CombineConfig, CombineOutcome, combine};
pub use error::DatasetError;
pub use export::{RowFormat, VectorsConfig, ids_beside, write_vectors};
pub use folder::{DatasetFolder, OpenedDataset};
pub use ids::AskedIds;
pub use listing::check_outside;
pub use merge::Merge;
pub use neighbours::{Metric, NeighboursConfig, Plan, neighbours};
pub use parts::{Part, Parts};
pub use peptides::{PeptidesConfig, PlaceFormat, write_peptides};
pub use select::{Selected, select};
pub use variants::{Sites, Substitution, Variant};
pub use vectors::Vectors;
