//! `fasta-shard`, the real program.

mod case;
mod input;
mod output;
mod record;
mod set;
mod usage;
