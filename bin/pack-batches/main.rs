//! `pack-batches`: packs the sequences of a shard into batches for variable-length kernels, without padding.

use std::process::ExitCode;

use plmkit_programs::pack_batches;

fn main() -> ExitCode {
    plmkit_cli::main(|args, stop| pack_batches::run(&args, stop))
}
