//! `validate-embeddings`, the real binary.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod files;
mod plausible;
mod reference;
mod set;
#[cfg(feature = "torch")]
mod spot_check;
mod verdict;
