//! `pack-batches`: packs the sequences of a shard into batches for variable-length kernels, without padding.

mod args;
mod report;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    plmkit_cli::main(|args, stop| run::run(&args, stop))
}
