//! The life of a program, from its command line to its exit code.

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser;
use plmkit_contract::{Exit, Stop};

use crate::generate::generate;
use crate::signals::Signals;
use crate::{Common, Fault, log, print};

/// The command line of a program.
pub trait Program: Parser {
    /// The program's name, as it is installed.
    const NAME: &'static str;

    /// Whether SIGINT and SIGTERM request [`Stop`]; a program that handles signals itself says no.
    const HANDLES_STOP: bool = true;

    /// The options that every program has.
    fn common(&self) -> &Common;
}

/// Parses the command line, runs `run` and turns what happened into an exit code.
///
/// A failure is one line on standard error. A panic is a bug of ours: one line, exit code 70, never an abort. A
/// program that was asked to stop by a signal cleans up and then dies of that signal.
pub fn main<P: Program>(run: impl FnOnce(P, &Stop) -> Result<Exit, Fault>) -> ExitCode {
    let program = P::parse();
    let common = program.common().clone();
    log::install(P::NAME, common.log_format, common.quiet);
    panic::set_hook(Box::new(|info| {
        tracing::error!("internal error, please report it: {}", one_line(info));
    }));

    let stop = Stop::default();
    let signals = P::HANDLES_STOP.then(|| Signals::install(&stop));
    let ended = if let Some(what) = common.generate {
        generate(what, P::command())
            .map_err(|error| Fault::new(Exit::Internal, error.to_string()))
            .and_then(print)
            .map(|()| Exit::Done)
    } else if let Some(Err(error)) = &signals {
        Err(Fault::new(
            Exit::Internal,
            format!("cannot handle signals: {error}"),
        ))
    } else {
        panic::catch_unwind(AssertUnwindSafe(|| run(program, &stop)))
            // The hook has already said what it was.
            .unwrap_or(Ok(Exit::Internal))
    };
    if let Some(Ok(signals)) = &signals {
        signals.reraise();
    }
    let exit = ended.unwrap_or_else(|fault| {
        tracing::error!("{}", fault.message());
        fault.exit()
    });
    ExitCode::from(exit.code())
}

fn one_line(info: &panic::PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("panic").replace('\n', " ");
    match info.location() {
        Some(place) => format!("{what} ({}:{})", place.file(), place.line()),
        None => what,
    }
}
