//! Datasets of many parts: the embeddings files of one set of shards, read as one table in the order of the input.
//!
//! A [`Dataset`] is opened first, then [`Merge`] reads the rows of its parts in order: it keeps a window of each part in memory whose
//! rows interleave with those of others. Memory does not grow with the rows or the parts.

mod combine;
mod components;
mod dataset;
mod error;
mod folder;
mod ids;
mod lists;
mod map;
mod merge;
mod neighbours;
mod part;
mod peptides;
mod results;
mod rows;
mod variants;
mod vectors;

pub use combine::{CombineConfig, CombineOutcome, combine};
pub use dataset::Dataset;
pub use error::DatasetError;
pub use folder::{check_outside, dataset_folder, embeddings_of, has_shards, own_files, stray_of};
pub use ids::AskedIds;
pub use map::{MapPoint, VectorMap, map_vectors};
pub use merge::Merge;
pub use neighbours::{HIT_COLUMNS, Metric, NeighboursConfig, Plan, neighbours};
pub use part::DatasetPart;
pub use peptides::{PlaceFormat, write_peptides};
pub use results::{
    SUMMARY_FILE, SUMMARY_HEADER, SampleVerdict, SummaryLine, embeddings_at, read_summary,
    summary_text,
};
pub use rows::{RowFormat, RowsConfig, ids_beside, write_rows};
pub use variants::{Sites, Table, Unscored, Variant};
pub use vectors::Vectors;
