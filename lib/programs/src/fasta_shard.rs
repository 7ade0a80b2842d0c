//! `fasta-shard`: FASTA files to a set of balanced shards, with every record accounted for.

mod args;
mod run;
mod summary;

pub use args::{Args, LongOptions, Options, RecordOptions, check};
pub use run::run;
