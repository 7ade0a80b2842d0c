//! `gpu-embed`: batches files to embeddings.

use std::process::ExitCode;

use plmkit_programs::gpu_embed;

fn main() -> ExitCode {
    plmkit_cli::main(|args, stop| gpu_embed::run(&args, stop))
}
