//! `monitor-log report`.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use plmkit_cli::{
    Exit, Fault, NamedPath, ensure_distinct, ensure_reports, files_of, lists_of, print,
};
use plmkit_kit::{Failure, path_text};
use plmkit_logs::event::EventLines;
use plmkit_logs::gpu_csv::GpuCsvLines;
use plmkit_logs::{LineParser, LogReader, Timestamp, log_name, logs_below};
use plmkit_store::{FileKind, StoreError, open_input, write_json, write_report};
use plmkit_telemetry::report::{Report, Runs, Samples, html, multiqc, sentences};
use tracing::{info, warn};

use super::args::ReportArgs;

/// Writes the report, or prints it as text, and returns the exit code of the verdict.
///
/// # Errors
/// A log is missing, or is none; an output is an input or data.
pub fn report(args: &ReportArgs) -> Result<Exit, Fault> {
    let events = logs_of::<EventLines>(&args.events, "jsonl", true)?;
    let samples = logs_of::<GpuCsvLines>(&args.gpu, "csv", true)?;
    check_paths(&events, &samples, args)?;
    let mut runs = Runs::default();
    runs.peak_tflops = args.peak_tflops;
    let report = read([&events, &samples], runs, true)?;
    if let Some(out) = &args.out {
        write_json(out, &report)?;
    }
    if let Some(mqc) = &args.mqc {
        write_json(mqc, &multiqc(&report, &sample_name(mqc)))?;
    }
    if let Some(path) = &args.html {
        write_report(path, &html(&report))?;
    }
    if args.out.is_some() || args.mqc.is_some() || args.html.is_some() {
        let (_, verdict, reasons) = report.headline();
        info!("{verdict}: {reasons}");
    } else {
        print(sentences(&report).join("\n") + "\n")?;
    }
    // Without a verdict there is no failure.
    match report.verdict.filter(|_| args.fail_on.is_some()) {
        Some(verdict) if report.verdict >= args.fail_on => {
            warn!("the verdict is {verdict}");
            Ok(Exit::Negative)
        }
        _ => Ok(Exit::Done),
    }
}

/// Returns the report on the runs of several samples, from their folders of logs. Writes nothing. A log that cannot be read is told
/// and left out.
///
/// # Errors
/// There are none.
pub fn report_of(folders: &[PathBuf]) -> Result<Report, Fault> {
    let events = logs_of::<EventLines>(folders, "jsonl", false)?;
    let samples = logs_of::<GpuCsvLines>(folders, "csv", false)?;
    read([&events, &samples], Runs::default(), false)
}

/// Returns the logs in the order of their first times: files, and for a folder the logs in it and in its subfolders. A file of
/// a folder that is no log is left out with a warning. If `is_strict`, a path without logs is an error.
pub(crate) fn logs_of<P: LineParser>(
    paths: &[PathBuf],
    extension: &str,
    is_strict: bool,
) -> Result<Vec<PathBuf>, Fault> {
    let mut logs = Vec::new();
    for path in paths {
        let (mut in_folder, mut notes) = (Vec::new(), Vec::new());
        if path.is_dir() {
            in_folder = logs_below(path, extension, &mut notes);
        }
        for (_, note) in notes {
            warn!("{note}");
        }
        in_folder.retain(|path| match first_time::<P>(path) {
            Err(error) if error.exit() == Exit::Data => {
                warn!("left out: {error}");
                false
            }
            _ => true,
        });
        // What is no folder, and a folder without logs.
        let found = if in_folder.is_empty() && is_strict {
            files_of(vec![path.clone()], &[extension])?
        } else {
            in_folder
        };
        logs.extend(found);
    }
    // An interrupted job goes on in a later log, whatever its name. Pipes are read only once.
    let time = |path: &PathBuf| first_time::<P>(path).ok().flatten();
    logs.sort_by_cached_key(|path| path.is_file().then(|| time(path)).flatten());
    Ok(logs)
}

type Log<P> = LogReader<BufReader<File>, P>;

fn open<P: LineParser>(path: &Path) -> Result<Log<P>, StoreError> {
    Ok(Log::new(BufReader::new(open_input(path)?), path))
}

/// Returns the time of the first item of a log; `None` for an empty log, and if it is unknown.
fn first_time<P: LineParser>(path: &Path) -> Result<Option<Timestamp>, StoreError> {
    let first = open::<P>(path)?.next().transpose()?;
    Ok(first.and_then(|first| P::time(&first)))
}

/// Reads a log, and returns whether its last line is torn.
fn read_log<P: LineParser>(path: &Path, mut add: impl FnMut(P::Item)) -> Result<bool, StoreError> {
    let mut log = open::<P>(path)?;
    for item in log.by_ref() {
        add(item?);
    }
    Ok(log.is_torn())
}

fn check_paths(events: &[PathBuf], samples: &[PathBuf], args: &ReportArgs) -> Result<(), Fault> {
    let lists = lists_of(args.events.iter().chain(&args.gpu));
    let inputs = [
        ("--gpu", samples),
        ("--events", events),
        ("a list of files", &lists),
    ];
    let outputs = [
        ("--out", args.out.as_ref()),
        ("--mqc", args.mqc.as_ref()),
        ("--html", args.html.as_ref()),
    ];
    check(&inputs, &outputs)
}

/// Checks that no output replaces an input or data.
pub(crate) fn check(
    inputs: &[(&'static str, &[PathBuf])],
    outputs: &[(&'static str, Option<&PathBuf>)],
) -> Result<(), Fault> {
    let inputs = inputs.iter();
    let inputs = inputs.flat_map(|(name, paths)| paths.iter().map(|path| (*name, &**path)));
    let inputs: Vec<NamedPath> = inputs.filter(|(_, path)| !path.is_dir()).collect();
    let outputs = outputs.iter();
    let outputs = outputs.filter_map(|(name, path)| Some((*name, path.as_ref()?.as_path())));
    let outputs: Vec<NamedPath> = outputs.collect();
    ensure_distinct(&inputs, &outputs)?;
    ensure_reports(&outputs)
}

/// Reads the logs. Events come first: they tell which samples belong to a run. Unless `is_strict`, a log that cannot be read is told.
fn read(logs: [&[PathBuf]; 2], mut runs: Runs, is_strict: bool) -> Result<Report, Fault> {
    let ([events, samples], mut torn) = (logs, Vec::<String>::new());
    let mut add = |read: Result<bool, StoreError>, kind: FileKind, path: &Path| {
        match read {
            Err(error) if is_strict => return Err(explain(kind, path, error)),
            Err(error) => warn!("left out: {error}"),
            Ok(is_torn) => torn.extend(is_torn.then(|| path_text(path))),
        }
        Ok(())
    };
    for path in events {
        add(read_events(path, &mut runs), FileKind::Events, path)?;
    }
    let mut joined = Samples::during(&runs);
    for path in samples {
        let read = read_log::<GpuCsvLines>(path, |sample| joined.add(&sample));
        add(read, FileKind::Samples, path)?;
    }
    let runs = Some(runs).filter(|_| !events.is_empty());
    let joined = Some(joined).filter(|_| !samples.is_empty());
    let mut report = Report::new(runs, joined);
    report.torn = torn;
    Ok(report)
}

/// Reads run events, and returns whether the last line of the log is torn.
pub(crate) fn read_events(path: &Path, runs: &mut Runs) -> Result<bool, StoreError> {
    runs.log = log_name(path);
    read_log::<EventLines>(path, |event| runs.add(&event))
}

/// Explains why a log cannot be read: it may be a file of another kind.
fn explain(expected: FileKind, path: &Path, error: StoreError) -> Fault {
    let mistaken = expected.mistaken(path);
    mistaken.map_or_else(|| error.into(), Fault::from)
}

/// Returns `SAMPLE` for `SAMPLE_mqc.json`.
fn sample_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.strip_suffix("_mqc").unwrap_or(&stem).to_owned()
}
