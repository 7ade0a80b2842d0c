//! `monitor-log`: records, shows and exports GPUs and runs, reports on runs, and estimates them.

mod args;
mod estimate;
mod export;
mod monitor;
mod record;
mod report;
mod top;

use args::Command;
use plmkit_cli::{Exit, Fault};

pub use args::{Args, EstimateArgs, ReportArgs};
pub use estimate::{estimate, estimate_of, shape};
pub use record::End;
pub use report::{report, report_of};

/// Runs the command. `end` is how the process then ends, if not with the exit code that is returned.
///
/// # Errors
/// The command line names no command, or the command fails.
pub fn run(args: Args, end: &mut Option<End>) -> Result<Exit, Fault> {
    match args.command {
        Some(Command::Record(args)) => record::record(&args, end),
        Some(Command::Top(args)) => top::top(&args, end),
        Some(Command::Export(args)) => export::export(&args, end),
        Some(Command::Report(args)) => report::report(&args),
        Some(Command::Estimate(args)) => estimate::estimate(args),
        None => Err(Fault::usage(
            "expected a command: record, top, export, report or estimate; see --help",
        )),
    }
}
