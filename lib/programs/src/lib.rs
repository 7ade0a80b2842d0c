//! The programs as functions: each module has the command line of one program, and the function that does its work.
//!
//! `bin/<program>` calls the function with its own command line, `plmkit` with values.

pub mod fasta_shard;
pub mod gpu_embed;
pub mod monitor_log;
pub mod pack_batches;
pub mod query_embeddings;
pub mod validate_embeddings;
pub mod variants;
