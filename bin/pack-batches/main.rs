//! `pack-batches`: packs the sequences of a shard into batches that a variable-length kernel computes without
//! padding.

mod args;
mod pack;
mod report;
mod run;
mod shard;

use std::process::ExitCode;

fn main() -> ExitCode {
    plmkit_cli::main(run::run)
}
