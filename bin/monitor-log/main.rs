//! `monitor-log`: records, shows and exports GPUs, host and runs, reports on runs, and estimates them.

mod args;
mod estimate;
mod export;
mod monitor;
mod record;
mod report;
mod top;

use std::process::ExitCode;

use args::{Args, Command};
use plmkit_cli::{Fault, die_of, end_at_once};
use record::End;

fn main() -> ExitCode {
    let mut end = None;
    let code = plmkit_cli::main(|args: Args, _| match args.command {
        Some(Command::Record(args)) => record::record(&args, &mut end),
        Some(Command::Top(args)) => top::top(&args, &mut end),
        Some(Command::Export(args)) => export::export(&args, &mut end),
        Some(Command::Report(args)) => report::report(&args),
        Some(Command::Estimate(args)) => estimate::estimate(args),
        None => Err(Fault::usage(
            "expected a command: record, top, export, report or estimate; see --help",
        )),
    });
    match end {
        None => code,
        // A hanging driver must not delay the exit.
        Some(End::Code(code)) => end_at_once(code),
        Some(End::Signal(signal)) => ExitCode::from(die_of(signal)),
    }
}
