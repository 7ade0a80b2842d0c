//! `plmkit`: FASTA to a validated dataset, by the functions of the other programs, in one process.

mod args;
mod command_line;
mod computer;
mod estimate;
mod fasta;
mod finished;
mod judged_sample;
mod layout;
mod model;
mod page;
mod params;
mod preflight;
mod programs;
mod progress;
mod run;
mod sample;
mod samples;
mod search;
mod stages;
mod steps;
mod summary;
mod table;
mod variants;
mod versions;

use std::process::ExitCode;

use command_line::{CommandLine, Other};
use plmkit_cli::Fault;

fn main() -> ExitCode {
    plmkit_cli::main(|line: CommandLine, stop| match (line.other, line.run) {
        (Some(Other::Estimate { args }), _) => estimate::estimate(&args, stop),
        (Some(Other::Fetch { model, common }), _) => model::fetch(&model, common, stop),
        (Some(Other::Search(search)), _) => search.run(stop),
        (Some(Other::Variants(variants)), _) => variants.run(stop),
        (Some(Other::Report(report)), _) => report.run(stop),
        (None, Some(args)) => stages::run(args, stop),
        (None, None) => Err(Fault::usage("expected inputs; see --help")),
    })
}
