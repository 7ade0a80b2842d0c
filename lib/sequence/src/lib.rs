//! FASTA records, compression, residue policy, windows, shard assignment.
//!
//! [`make_shards`] is the whole job of `fasta-shard`: one pass over FASTA inputs that ends in a set of shards. What
//! it does to a record ([`Policy::prepare`]), to an id ([`Ids`]) and to a sequence ([`normalise`], [`windows`]) is
//! pure; files are touched where inputs are read ([`FastaReader`]) and shards are written.

mod assignment;
mod compression;
mod config;
mod duplicate;
mod encoders;
mod error;
mod existing;
mod fasta;
mod folder;
mod input;
mod lengths;
mod nucleic_acids;
mod pass;
mod pipe;
mod prepare;
mod protein;
mod residue;
mod run;
mod shard_key;
mod source;
mod tally;
mod window;

pub use compression::Compression;
pub use config::{ShardConfig, ShardTarget};
pub use duplicate::{DuplicatePolicy, Ids, TakenId};
pub use error::{RecordProblem, ShardError};
pub use fasta::{FastaReader, Limits, Record};
pub use input::Input;
pub use prepare::{LongPolicy, Policy, Prepared};
pub use protein::Protein;
pub use residue::{InvalidPolicy, InvalidResidue, ResidueChanges, normalise};
pub use run::{ShardOutcome, make_shards};
pub use source::Source;
pub use window::windows;
