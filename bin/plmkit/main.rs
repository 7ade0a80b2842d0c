//! `plmkit`: FASTA to a validated dataset, by the other programs.

mod args;
mod check;
mod estimate;
mod fasta;
mod lock;
mod model;
mod options;
mod params;
mod plan;
mod programs;
mod run;
mod sample;
mod stages;
mod steps;
mod summary;
mod table;
mod versions;

use std::process::ExitCode;

fn main() -> ExitCode {
    plmkit_cli::main(stages::run)
}
