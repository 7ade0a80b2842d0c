//! `monitor-log record`.

use std::env;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus};

use plmkit_cli::{Exit, Fault};
use plmkit_contract::{io_text, path_text};
use plmkit_logs::LogError;
use plmkit_logs::gpu_csv::GpuCsvWriter;
use plmkit_logs::gpu_parquet::to_parquet;
use plmkit_store::StoreError;
use plmkit_telemetry::command::{Forwarder, wait_for_end};
use plmkit_telemetry::{DRIVER_RETRY, Recorder, RecorderEnd, RecorderOptions, Sources};

use crate::args::RecordArgs;

/// How this process has to end, in the paths of another or by a signal of its own.
pub(crate) enum End {
    /// With an exit code that is not ours.
    Code(u8),
    /// Of a signal.
    Signal(i32),
}

/// As `env` and the shells have it (POSIX, Shell & Utilities 2.8.2).
const NOT_FOUND: u8 = 127;
const CANNOT_RUN: u8 = 126;

/// Samples until the command ends, or until a signal where there is none.
pub(crate) fn record(args: &RecordArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    // clap tells an empty command after `--` from none by nothing.
    if args.command.is_empty() && env::args_os().next_back().is_some_and(|last| last == "--") {
        return Err(Fault::usage("expected a command after --, found none"));
    }
    // A log that cannot be opened is a mistake on the command line: better said before a long run than after it.
    let paths = LogPaths::new(&args.out)?;
    let was_there = paths.log.exists();
    let log = match GpuCsvWriter::append(&paths.log) {
        // A workflow engine may start a task again while the one before still runs. The command must not suffer from that.
        Err(error @ LogError::Store(StoreError::Busy { .. })) if !args.command.is_empty() => {
            tracing::warn!("{error}; recording begins when that process has ended");
            None
        }
        log => Some(log?),
    };
    let internal =
        |error: io::Error| Fault::new(Exit::Internal, format!("cannot handle signals: {error}"));
    let Some((program, arguments)) = args.command.split_first() else {
        let recorder = start(log, &paths, args, None);
        *end = Some(End::Signal(wait_for_end().map_err(internal)?));
        finish(recorder, &paths);
        return Ok(Exit::Done);
    };

    let forwarder = Forwarder::install().map_err(internal)?;
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|error| {
            if !was_there && log.is_some() {
                // Nothing was recorded: an empty log would only look like a record.
                let _ = fs::remove_file(&paths.log);
            }
            *end = Some(End::Code(if error.kind() == io::ErrorKind::NotFound {
                NOT_FOUND
            } else {
                CANNOT_RUN
            }));
            Fault::new(
                Exit::Unavailable,
                format!(
                    "cannot run '{}': {}",
                    path_text(program.as_ref()),
                    io_text(&error)
                ),
            )
        })?;
    // With all that descends from this process: what the command leaves running in the background as well.
    let recorder = start(log, &paths, args, Some(process::id()));
    let status = forwarder.wait(&child).map_err(internal)?;
    finish(recorder, &paths);
    *end = Some(end_of(status));
    Ok(Exit::Done)
}

/// Where the samples go.
struct LogPaths {
    log: PathBuf,
    /// What is made of the log at the end.
    parquet: Option<PathBuf>,
}

impl LogPaths {
    fn new(out: &Path) -> Result<Self, Fault> {
        if out
            .extension()
            .is_none_or(|extension| extension != "parquet")
        {
            return Ok(Self {
                log: out.to_owned(),
                parquet: None,
            });
        }
        // A log is appended to; a Parquet file cannot be, and another's samples are not overwritten.
        if out.exists() {
            return Err(Fault::new(
                Exit::CannotCreate,
                format!(
                    "{}: exists, and nothing can be added to a Parquet file: choose another path or remove it",
                    path_text(out)
                ),
            ));
        }
        let mut log = out.as_os_str().to_owned();
        log.push(".csv");
        Ok(Self {
            log: log.into(),
            parquet: Some(out.to_owned()),
        })
    }
}

/// A command goes on without a record where there can be none. Without a log, which another process has, it begins later.
fn start(
    log: Option<GpuCsvWriter>,
    paths: &LogPaths,
    args: &RecordArgs,
    command: Option<u32>,
) -> Option<Recorder> {
    let folder = args.out.parent().filter(|folder| *folder != Path::new(""));
    let options = RecorderOptions {
        interval: args.interval,
        sources: Sources {
            nvml: args.driver.nvml.clone(),
            driver_retry: DRIVER_RETRY,
            disk: Some(folder.unwrap_or(Path::new(".")).to_owned()),
            command,
        },
        memory_warning: args.memory_warning,
    };
    let started = match log {
        Some(log) => Recorder::start(log, options),
        None => Recorder::start_when_free(&paths.log, options),
    };
    started
        .inspect_err(|error| tracing::warn!("cannot start recording: {}", io_text(error)))
        .ok()
}

/// Whatever becomes of the record, the command has ended as it has ended.
fn finish(recorder: Option<Recorder>, paths: &LogPaths) {
    let Some(recorder) = recorder else { return };
    let left = recorder.finish();
    let Some(parquet) = &paths.parquet else {
        return;
    };
    let are_in_the_log = |why: &str| {
        tracing::warn!("{why}; the samples are in {}", path_text(&paths.log));
    };
    match left {
        RecorderEnd::Nothing => {}
        RecorderEnd::Hangs => are_in_the_log(&format!("{} is not made", path_text(parquet))),
        // Another process has made it meanwhile.
        RecorderEnd::Log(_) if parquet.exists() => {
            are_in_the_log(&format!("{}: exists", path_text(parquet)));
        }
        // Held until the log is removed: another recorder would add to what is lost.
        RecorderEnd::Log(_held) => match to_parquet(&paths.log, parquet) {
            Ok(()) => {
                let _ = fs::remove_file(&paths.log);
            }
            Err(error) => are_in_the_log(&error.to_string()),
        },
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (None, Some(signal)) => End::Signal(signal),
        (code, _) => End::Code(
            code.and_then(|code| u8::try_from(code).ok())
                .unwrap_or(Exit::Internal.code()),
        ),
    }
}
