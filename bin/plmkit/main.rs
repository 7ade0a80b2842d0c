//! `plmkit`: FASTA to a validated dataset, by the functions of the other programs, in one process.

mod args;
mod check;
mod computer;
mod estimate;
mod fasta;
mod finished;
mod hints;
mod layout;
mod lock;
mod model;
mod options;
mod params;
mod plan;
mod progress;
mod run;
mod sample;
mod stages;
mod steps;
mod summary;
mod table;
mod versions;

use std::process::ExitCode;

use args::{CommandLine, Other};
use plmkit_cli::Fault;

fn main() -> ExitCode {
    plmkit_cli::main(|line: CommandLine, stop| match (line.other, line.run) {
        (Some(Other::Estimate { args, report }), _) => estimate::estimate(&args, report, stop),
        (Some(Other::Fetch { model, common }), _) => model::fetch(&model, common, stop),
        (None, Some(args)) => stages::run(args, stop),
        (None, None) => Err(Fault::usage("expected inputs; see --help")),
    })
}
