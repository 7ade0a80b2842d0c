//! `pack-batches`: packs the sequences of a shard into batches for variable-length kernels, without padding.

mod args;
mod report;
mod run;

pub use args::{Args, Options};
pub(crate) use run::pack_shard;
pub use run::run;
