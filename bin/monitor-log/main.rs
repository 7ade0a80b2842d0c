//! `monitor-log`: records, shows and exports GPUs and runs, reports on runs, and estimates them.

use std::process::ExitCode;

use plmkit_cli::{die_of, end_at_once};
use plmkit_programs::monitor_log::{self, End};

fn main() -> ExitCode {
    let mut end = None;
    let code = plmkit_cli::main(|args, _| monitor_log::run(args, &mut end));
    match end {
        None => code,
        // A hanging driver must not delay the exit.
        Some(End::Code(code)) => end_at_once(code),
        Some(End::Signal(signal)) => ExitCode::from(die_of(signal)),
    }
}
