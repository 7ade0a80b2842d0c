//! `fasta-shard`: FASTA files to a set of balanced shards, with every record accounted for.

use std::process::ExitCode;

use plmkit_programs::fasta_shard;

fn main() -> ExitCode {
    plmkit_cli::keep_freed_memory();
    plmkit_cli::main(fasta_shard::run)
}
