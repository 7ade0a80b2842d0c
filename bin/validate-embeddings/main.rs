//! `validate-embeddings`: checks that embeddings are complete, finite and right.

use std::process::ExitCode;

use plmkit_programs::validate_embeddings;

fn main() -> ExitCode {
    plmkit_cli::main(validate_embeddings::run)
}
