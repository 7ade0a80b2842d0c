//! `gpu-embed`: batches files to embeddings.

mod args;
mod model;
mod run;
#[cfg(feature = "testing")]
mod testing;

use std::process::ExitCode;

fn main() -> ExitCode {
    plmkit_cli::main(|args: args::Args, stop| run::run(args, stop))
}
