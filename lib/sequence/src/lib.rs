//! FASTA records, compression, residue policy, windows, shard assignment.
//!
//! [`make_shards`] does the work of `fasta-shard`: it reads FASTA inputs in one pass and writes a set of shards. The treatment of
//! records ([`Policy::prepare`]) and sequences ([`normalise`], [`windows`]) is pure.

mod aliases;
mod assignment;
mod block;
mod chunk;
mod compression;
mod config;
mod duplicate;
mod error;
mod existing;
mod fasta;
mod folder;
mod id_table;
mod input;
mod known;
mod lengths;
mod lines;
mod nucleic_acids;
mod policy;
mod protein;
mod records;
mod residue;
mod run;
mod shard_limit;
mod shard_name;
mod sharding_run;
mod shards;
mod source;
mod tally;
mod tasks;
mod translate;
mod windows;

pub use block::Limits;
pub use config::{ShardConfig, ShardOptions, ShardTarget};
pub use duplicate::DuplicatePolicy;
pub use error::ShardError;
pub use fasta::FastaReader;
pub use known::{OF_RESIDUES, residue_difference};
pub use lengths::read_lengths;
pub use policy::{LongPolicy, Outcome, Policy};
pub use records::{Record, Records};
pub use residue::{InvalidPolicy, ResidueChanges, normalise};
pub use run::{check_work, make_shards};
pub use shard_limit::ShardLimit;
pub use shard_name::is_shard_name;
pub use source::Source;
pub use translate::{
    OrfBetween, STANDARD_CODE, StopPolicy, Translated, Translation, Translator, genetic_code,
};
pub use windows::windows;
