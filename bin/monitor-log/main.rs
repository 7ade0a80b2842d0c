//! `monitor-log`: records, shows and exports GPUs, host and runs, and reports on runs.

mod args;
mod export;
mod record;
mod report;
mod top;
mod watch;

use std::process::ExitCode;

use args::{Args, Command};
use plmkit_cli::Fault;
use plmkit_telemetry::command::die_of;
use record::End;

fn main() -> ExitCode {
    let mut end = None;
    let code = plmkit_cli::main(|args: Args, _| match args.command {
        Some(Command::Record(args)) => record::record(&args, &mut end),
        Some(Command::Top(args)) => top::top(&args, &mut end),
        Some(Command::Export(args)) => export::export(&args, &mut end),
        Some(Command::Report(args)) => report::report(&args),
        None => Err(Fault::usage(
            "expected a command: record, top, export or report; see --help",
        )),
    });
    match end {
        None => code,
        Some(End::Code(code)) => ExitCode::from(code),
        Some(End::Signal(signal)) => {
            die_of(signal);
            ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or_default()))
        }
    }
}
