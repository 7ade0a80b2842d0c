//! `fasta-shard`: FASTA files to a set of balanced shards, with every record accounted for.

mod args;
mod run;
mod summary;

use std::process::ExitCode;

fn main() -> ExitCode {
    plmkit_cli::main(run::run)
}
