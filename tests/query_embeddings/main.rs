//! `query-embeddings`, the real binary.

#[path = "../common/mod.rs"]
mod common;
mod dataset;
mod guards;
mod matrix;
mod own_files;
#[path = "../validate_embeddings/set.rs"]
mod set;
