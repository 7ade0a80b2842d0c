//! `validate-embeddings`: checks that embeddings are complete, finite and right.

mod args;
mod dataset;
mod groups;
mod html;
mod lists;
mod log;
mod mqc;
mod outputs;
mod proteins;
mod recompute;
mod reference;
mod report;
mod rows;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    plmkit_cli::main(run::run)
}
