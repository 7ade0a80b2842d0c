//! Runs a program, from its command line to its exit code.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::num::{IntErrorKind, ParseIntError};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Command, Parser};
use plmkit_kit::{Exit, Stop, is_catching_panic};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, test_kill_process};
use signal_hook::consts::{SIGABRT, SIGHUP};
use signal_hook::low_level;
use tracing::Level;

use crate::generate::generate;
use crate::signals::{die_of, handle_file_size_limit, install, is_ignored};
use crate::stdout::{check_printed, print};
use crate::{Common, Fault, Generate, LogFormat, log, memory};

/// The command line of a program.
pub trait Program: Parser {
    /// The name of the executable.
    const NAME: &'static str;

    /// Whether SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGUSR1 request [`Stop`]. False if the program handles signals itself.
    const HANDLES_STOP: bool = true;

    /// The modules of which only warnings and errors are shown.
    const QUIET: &'static [&'static str] = &[];

    /// Returns the options of all programs.
    fn common(&self) -> &Common;
}

/// Parses the command line, calls `run`, and returns the exit code.
///
/// A failure is one line on standard error. A panic is one line and exit code 70, never an abort. A program that a signal stopped
/// cleans up, then dies of that signal.
pub fn main<P: Program>(run: impl FnOnce(P, &Stop) -> Result<Exit, Fault>) -> ExitCode {
    let mut matches = match P::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return report_clap_error::<P>(&error),
    };
    // Parsed before the program's arguments, because required ones are missing.
    if let Some(what) = matches.remove_one("generate") {
        log::install(P::NAME, LogFormat::Text, Level::INFO, &[]);
        return exit_code(print_generated(what, P::command()));
    }
    let program = match P::from_arg_matches_mut(&mut matches) {
        Ok(program) => program,
        Err(error) => return report_clap_error::<P>(&error),
    };
    let common = program.common();
    let level = match common {
        Common { quiet: true, .. } => Level::WARN,
        Common { verbose: true, .. } => Level::DEBUG,
        _ => Level::INFO,
    };
    log::install(P::NAME, common.log_format, level, P::QUIET);
    memory::prepare_refusal_line(P::NAME, common.log_format);
    panic::set_hook(Box::new(|info| {
        if let Some(what) = info.payload_as_str().and_then(memory::refusal) {
            memory::end(format_args!("{what}"));
        }
        // A decoder's panic is reported as an error of its file.
        if !is_catching_panic() {
            tracing::error!("internal error, please report it: {}", one_line(info));
        }
    }));

    let stop = Stop::default();
    let signals = P::HANDLES_STOP.then(|| install(&stop)).transpose();
    let handled = handle_file_size_limit().and_then(|()| memory::survive_aborts());
    let result = if let Some(error) = signals.as_ref().err().or(handled.as_ref().err()) {
        let what = "cannot handle signals";
        Err(Fault::of_system(Exit::Internal, what, error))
    } else {
        panic::catch_unwind(AssertUnwindSafe(|| {
            end_with_parent()?;
            run(program, &stop)
        }))
        // The hook has printed the panic.
        .unwrap_or(Ok(Exit::Internal))
    };
    let code = exit_code(result.map_err(with_removed_folder));
    let received = signals.ok().flatten();
    match received.map_or(0, |signal| signal.load(Ordering::Relaxed)) {
        0 => code,
        signal => ExitCode::from(die_of(signal.cast_signed() as i32)),
    }
}

/// Ends the process with `fault` if a library aborts during an interruptible call of `stop`. Without it, the program would die of
/// SIGABRT without a message, and schedulers would retry it.
pub fn on_abort(common: &Common, stop: &Stop, fault: &Fault) -> io::Result<()> {
    let tool = log::TOOL.get().copied().unwrap_or_default();
    let line = log::line(tool, common.log_format, Level::ERROR, fault.message());
    let (calling, code) = (stop.interruptible_flag(), fault.exit().code().into());
    let end = move || {
        if calling.load(Ordering::SeqCst) {
            let _ = rustix::io::write(io::stderr(), line.as_bytes());
            low_level::exit(code);
        }
    };
    // SAFETY: the handler uses only an atomic, `write` and `_exit`.
    #[allow(unsafe_code)]
    unsafe { low_level::register(SIGABRT, end) }.map(drop)
}

/// Prints clap's help, or its error on one line.
fn report_clap_error<P: Program>(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        log::install(P::NAME, LogFormat::Text, Level::INFO, &[]);
        let printed = error.print().and_then(|()| io::stdout().flush());
        return exit_code(check_printed(printed).map(|_| Exit::Done));
    }
    log::install(P::NAME, requested_format(env::args_os()), Level::INFO, &[]);
    exit_code(Err(fault(error)))
}

/// Parses the `words` of a command line of another program, which a user may have written.
///
/// # Errors
/// They are no command line of it.
pub fn parse<P: Program>(words: &[String]) -> Result<P, Fault> {
    let words = std::iter::once(P::NAME).chain(words.iter().map(String::as_str));
    P::try_parse_from(words)
        .map_err(|error| fault(&error).reworded(|message| format!("{}: {message}", P::NAME)))
}

/// The error of clap on one line.
pub(crate) fn fault(error: &clap::Error) -> Fault {
    let what = without_usage(&explained(error));
    Fault::usage(format!("{what}; see --help"))
}

/// Finds the requested format of messages in a command line that cannot be parsed.
fn requested_format(arguments: impl IntoIterator<Item = OsString>) -> LogFormat {
    // Arguments after `--` belong to another program.
    let own = arguments
        .into_iter()
        .take_while(|argument| argument != "--");
    let mut is_value = false;
    let json = own.fold(false, |json, argument| {
        let is_json = argument == "--log-format=json" || (is_value && argument == "json");
        is_value = argument == "--log-format";
        json || is_json
    });
    if json {
        LogFormat::Json
    } else {
        LogFormat::Text
    }
}

/// The text of clap's error. Why a value is no number is said for people, not for programmers of Rust.
fn explained(error: &clap::Error) -> String {
    let text = error.to_string();
    let Some(source) = error.source() else {
        return text;
    };
    let expected = match source.downcast_ref().map(ParseIntError::kind) {
        Some(IntErrorKind::Zero) => "expected a number above 0",
        Some(IntErrorKind::PosOverflow) => "expected a smaller number",
        Some(_) => "expected a whole number, in digits only",
        None => return text,
    };
    text.replace(&source.to_string(), expected)
}

/// Joins the lines before the usage.
fn without_usage(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let text = text.split("\n\nUsage: ").next().unwrap_or_default();
    let text = text.split("\n\nFor more").next().unwrap_or_default();
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        line += match part {
            _ if line.is_empty() => "",
            _ if part.starts_with("tip:") => "; ",
            _ if part.starts_with('[') || line.ends_with(':') => " ",
            _ => ", ",
        };
        line += part;
    }
    plmkit_kit::one_line(&line, usize::MAX)
}

fn print_generated(what: Generate, command: Command) -> Result<Exit, Fault> {
    let text = generate(what, command).map_err(Fault::internal)?;
    print(text).map(|_| Exit::Done)
}

/// Adds to the message that the current folder was removed, if so: it explains errors of relative paths.
fn with_removed_folder(fault: Fault) -> Fault {
    if env::current_dir().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        fault.reworded(|message| format!("{message}; the current folder was removed"))
    } else {
        fault
    }
}

fn exit_code(result: Result<Exit, Fault>) -> ExitCode {
    let exit = result.unwrap_or_else(|fault| {
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

/// Names the process that started this program, if this program is to end when that process does.
pub const PARENT_VARIABLE: &str = "PLMKIT_PARENT";

/// Has the kernel send SIGTERM when the parent ends, however that happens, if the parent asked for it: this process saves its work.
fn end_with_parent() -> Result<(), Fault> {
    let named = env::var(PARENT_VARIABLE).unwrap_or_default();
    if named.is_empty() {
        return Ok(());
    }
    let id = named.parse().ok().filter(|&id: &i32| id > 0);
    let parent = id.and_then(Pid::from_raw);
    // It may come several times, for each thread of the parent that ends, and a second SIGTERM would end this process at once.
    let signal = if is_ignored(SIGHUP) {
        Signal::TERM
    } else {
        Signal::HUP
    };
    let _ = set_parent_process_death_signal(Some(signal));
    if parent.is_some() && getppid() == parent {
        return Ok(());
    }
    // It ended before, or it is an ancestor, and its child passed the variable on.
    if parent.is_none_or(|parent| test_kill_process(parent) == Err(Errno::SRCH)) {
        let what = "expected the process that started this one, found none";
        let exit = parent.map_or(Exit::Usage, |_| Exit::Transient);
        return Err(Fault::new(
            exit,
            format!("{PARENT_VARIABLE} '{named}': {what}"),
        ));
    }
    let _ = set_parent_process_death_signal(None);
    Ok(())
}
