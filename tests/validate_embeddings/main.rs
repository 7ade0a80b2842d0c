//! `validate-embeddings`, the real binary.

#[path = "../common/mod.rs"]
mod common;
mod files;
mod mutations;
mod plausible;
mod reference;
mod set;
mod spot_check;
mod unusual;
mod verdict;
