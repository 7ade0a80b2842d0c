//! `query-embeddings`, the real binary.

#[path = "../common/mod.rs"]
mod common;
mod dataset;
mod formats;
mod guards;
mod many;
mod matrix;
mod neighbours;
mod own_files;
mod peptides;
mod results;
mod samples;
#[path = "../validate_embeddings/set.rs"]
mod set;
mod shards;
