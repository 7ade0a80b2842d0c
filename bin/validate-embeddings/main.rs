//! `validate-embeddings`: checks that embeddings are complete, finite and right.

mod args;
mod dataset;
mod file;
mod groups;
mod html;
mod mqc;
mod proteins;
mod reference;
mod report;
mod run;
mod spot_check;
mod vectors;

use std::process::ExitCode;

fn main() -> ExitCode {
    plmkit_cli::main(run::run)
}
