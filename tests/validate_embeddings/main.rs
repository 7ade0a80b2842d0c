//! `validate-embeddings`, the real binary.

#[path = "../common/mod.rs"]
mod common;
mod files;
mod reference;
mod set;
mod verdict;
