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

use args::CommandLine;

fn main() -> ExitCode {
    plmkit_cli::main(|command_line, stop| match command_line {
        CommandLine::Run(args) => stages::run(*args, stop),
        CommandLine::Estimate(estimated) => estimate::estimate(*estimated, stop),
        CommandLine::Fetch(fetched) => model::fetch(&fetched, stop),
    })
}
