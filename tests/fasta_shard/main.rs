//! `fasta-shard`, the real program.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod duplicates;
mod input;
mod output;
mod record;
mod set;
mod translate;
mod usage;
