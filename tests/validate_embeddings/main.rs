//! `validate-embeddings`, the real binary.

#[path = "../common/mod.rs"]
mod common;
mod dataset;
mod expectations;
mod faults;
mod files;
mod guards;
mod matrix;
mod merge;
mod own_files;
mod plausible;
mod reference;
mod reference_files;
mod set;
mod spot_check;
mod unusual;
mod verdict;
