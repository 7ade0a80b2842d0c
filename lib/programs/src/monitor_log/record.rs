//! `monitor-log record`.

use std::env;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use plmkit_cli::{Exit, Fault};
use plmkit_kit::{io_text, path_text};
use plmkit_logs::gpu_csv::GpuCsvWriter;
use plmkit_store::StoreError;
use plmkit_telemetry::command::{Forwarder, wait_for_end};
use plmkit_telemetry::{Recorder, Sampler};

use super::args::RecordArgs;

/// How this process ends, if not with an exit code of its own.
pub enum End {
    /// With the exit code of the command.
    Code(u8),
    /// By a signal.
    Signal(i32),
}

/// The exit codes of `env` and shells (POSIX, Shell & Utilities 2.8.2).
const NOT_FOUND: u8 = 127;
const CANNOT_RUN: u8 = 126;

/// Samples until the command ends, or until a signal without a command.
pub(crate) fn record(args: &RecordArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    // clap does not distinguish an empty command after `--` from none.
    if args.command.is_empty() && env::args_os().next_back().is_some_and(|last| last == "--") {
        return Err(Fault::usage("expected a command after --, found none"));
    }
    // A log that cannot be opened is a mistake on the command line, to be reported before a long run.
    let path = &args.out;
    if path.extension().is_some_and(|end| end == "parquet") {
        let what = format!("--out {}: expected a name of a CSV file", path_text(path));
        return Err(Fault::usage(what));
    }
    let existed = path.exists();
    let log = match GpuCsvWriter::append(path) {
        // A workflow engine may restart a task while its predecessor still runs. The command must not suffer from that.
        Err(error @ StoreError::Busy { .. }) if !args.command.is_empty() => {
            tracing::warn!("{error}; going on without a record");
            None
        }
        log => Some(log?),
    };
    let internal =
        |error: io::Error| Fault::of_system(Exit::Internal, "cannot handle signals", &error);
    let Some((program, arguments)) = args.command.split_first() else {
        let recorder = start(log, args);
        *end = Some(End::Signal(wait_for_end().map_err(internal)?));
        recorder.and_then(Recorder::finish);
        return Ok(Exit::Done);
    };

    let forwarder = Forwarder::install().map_err(internal)?;
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|error| {
            if !existed && log.is_some() {
                // An empty log would look like a record.
                let _ = fs::remove_file(path);
            }
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            *end = Some(End::Code(if is_missing { NOT_FOUND } else { CANNOT_RUN }));
            let what = format!("cannot run '{}'", path_text(program.as_ref()));
            Fault::of_system(Exit::Unavailable, what, &error)
        })?;
    let recorder = start(log, args);
    let status = forwarder.wait(&child).map_err(internal)?;
    recorder.and_then(Recorder::finish);
    *end = Some(end_of(status));
    Ok(Exit::Done)
}

/// Starts recording. A command goes on even if recording cannot start.
fn start(log: Option<GpuCsvWriter>, args: &RecordArgs) -> Option<Recorder> {
    let nvml = args.sampling.nvml.clone();
    let open = move || Sampler::open(nvml.as_deref());
    Recorder::start(log?, args.sampling.interval, open)
        .inspect_err(|error| tracing::warn!("cannot start recording: {}", io_text(error)))
        .ok()
}

fn end_of(status: ExitStatus) -> End {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    match (status.signal(), code) {
        (Some(signal), None) => End::Signal(signal),
        (_, code) => End::Code(code.unwrap_or(Exit::Internal.code())),
    }
}
