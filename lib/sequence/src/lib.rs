//! FASTA records, compression, residue policy, windows, tokenizer, shard assignment.
//!
//! [`make_shards`] is the whole job of `fasta-shard`: one pass over FASTA inputs that ends in a set of shards. What
//! it does to a record ([`Policy::prepare`]), to an id ([`Ids`]) and to a sequence ([`normalise`], [`windows`]) is
//! pure; files are touched where inputs are read ([`FastaReader`]) and shards are written.

mod alphabet;
mod assign;
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
mod pass;
mod pipe;
mod prepare;
mod protein;
mod residue;
mod run;
mod shard_key;
mod source;
mod tally;
mod token;
mod window;

pub use assign::{LeastLoaded, Sequential};
pub use compression::Format;
pub use config::{Config, Target};
pub use duplicate::{DuplicatePolicy, Ids, TakenId};
pub use error::ShardError;
pub use fasta::{FastaError, FastaReader, Limits, Record};
pub use input::Input;
pub use plmkit_contract::Quoted;
pub use prepare::{LongPolicy, Policy, Prepared};
pub use protein::Protein;
pub use residue::{InvalidPolicy, InvalidResidue, ResidueChanges, normalise};
pub use run::{Outcome, make_shards};
pub use source::{Source, SourceError};
pub use token::{CLS, EOS, SPECIAL_TOKENS, UnknownResidue, tokenize};
pub use window::windows;
